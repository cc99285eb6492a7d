// SPDX-License-Identifier: Apache-2.0
// Elastic jobs before a whole controller and its scheduler.
#include <gtest/gtest.h>

#include <algorithm>

#include "operator/metrics.hpp"
#include "operator/service/debug_job.hpp"
#include "tests/unit/operator/controller_bench.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;

void add_elastic(ControllerBench& bench, const std::string& name, int replicas, int fewest = 1) {
  const json container = {{"name", "trainer"},
                          {"image", "i"},
                          {"command", {"train"}},
                          {"resources", {{"requests", {{"cpu", 1}}}}}};
  bench.add_job(
      name,
      {{"elastic",
        {{"role", "w"}, {"replicas", replicas}, {"minReplicas", fewest}, {"maxReplicas", 8}}},
       {"roles",
        json::array({{{"name", "w"},
                      {"template", {{"spec", {{"containers", json::array({container})}}}}}}})}});
  bench.settle();
}

void scale(ControllerBench& bench, const std::string& name, int replicas) {
  bench.patch_job(name, {{"spec", {{"elastic", {{"replicas", replicas}}}}}});
  bench.settle();
}

void set_node_ready(ControllerBench& bench, const std::string& name, bool ready) {
  const json condition = {{"type", "Ready"}, {"status", ready ? "True" : "Unknown"}};
  bench.cluster().poke(kube::kNodes, "", name,
                       json{{"status", {{"conditions", json::array({condition})}}}}.dump());
  bench.settle();
}

json status_of(const ControllerBench& bench, const std::string& name) {
  return bench.job(name)["status"];
}

TEST(ElasticJob, FollowsItsSpec) {
  ControllerBench bench;
  for (const char* node : {"n0", "n1", "n2", "n3"}) bench.add_node(node, 1);
  add_elastic(bench, "j", 2);
  EXPECT_EQ(status_of(bench, "j")["ready"], "2/2") << status_of(bench, "j").dump(1);
  scale(bench, "j", 4);
  json status = status_of(bench, "j");
  EXPECT_EQ(status["ready"], "4/4") << status.dump(1);
  EXPECT_EQ(status["phase"], "Running");
  EXPECT_EQ(status["elastic"]["replicas"], 4);
  EXPECT_EQ(status["attempt"], 1);
  EXPECT_EQ(status["restarts"], 0);
  for (const json& pod : bench.pods("j")) EXPECT_EQ(setting_of(pod, "NODE_COUNT"), "4");
  scale(bench, "j", 1);
  status = status_of(bench, "j");
  EXPECT_EQ(status["ready"], "1/1") << status.dump(1);
  EXPECT_EQ(bench.pods("j").size(), 1U);
  EXPECT_EQ(setting_of(bench.pods("j").front(), "NODE_COUNT"), "1");
}

TEST(ElasticJob, IsNotStoppedForRoomThatIsNotThere) {
  ControllerBench bench;
  bench.add_node("n0", 1);
  bench.add_node("n1", 1);
  add_elastic(bench, "j", 2);
  scale(bench, "j", 3);
  EXPECT_EQ(status_of(bench, "j")["ready"], "2/2");
  EXPECT_EQ(status_of(bench, "j")["attempt"], 0);
  bench.add_node("n2", 1);
  bench.settle();
  EXPECT_EQ(status_of(bench, "j")["ready"], "3/3") << status_of(bench, "j").dump(1);
}

TEST(ElasticJob, TwoJobsDoNotGrowIntoOneNode) {
  ControllerBench bench;
  for (const char* node : {"n0", "n1", "n2"}) bench.add_node(node, 1);
  add_elastic(bench, "a", 1);
  add_elastic(bench, "b", 1);
  bench.patch_job("a", {{"spec", {{"elastic", {{"replicas", 2}}}}}});
  bench.patch_job("b", {{"spec", {{"elastic", {{"replicas", 2}}}}}});
  bench.settle();
  EXPECT_EQ(status_of(bench, "a")["elastic"]["replicas"].get<int>() +
                status_of(bench, "b")["elastic"]["replicas"].get<int>(),
            3);
}

TEST(ElasticJob, StartsSmallerAndGrowsLater) {
  ControllerBench bench;
  bench.add_node("n0", 1);
  bench.add_node("n1", 1);
  add_elastic(bench, "j", 3);
  json status = status_of(bench, "j");
  EXPECT_EQ(status["ready"], "2/2") << status.dump(1);
  EXPECT_EQ(status["elastic"]["message"],
            "runs with 2 of 3 replicas: w: 2 of 3 pods fit on 2 nodes");
  bench.add_node("n2", 1);
  bench.settle();
  EXPECT_EQ(status_of(bench, "j")["ready"], "2/2") << "not soon after its start";
  bench.advance(std::chrono::minutes(6));
  EXPECT_EQ(status_of(bench, "j")["ready"], "3/3") << status_of(bench, "j").dump(1);
  EXPECT_FALSE(status_of(bench, "j")["elastic"].contains("message"));
}

TEST(ElasticJob, ShrinksOnNodesThatItsPodsTolerateByAdmission) {
  for (const bool restarted : {false, true}) {
    ControllerBench bench;
    for (const char* node : {"n0", "n1"}) {
      bench.add_node(node, 1);
      bench.cluster().poke(kube::kNodes, "", node,
                           R"({"spec":{"taints":[{"key":"gpu","effect":"NoSchedule"}]}})");
    }
    // as ExtendedResourceToleration does
    bench.cluster().set_admission([](const kube::Resource& resource, json& object) {
      if (resource.plural == kube::kPods.plural)
        object["spec"]["tolerations"] = json::array({{{"key", "gpu"}, {"operator", "Exists"}}});
    });
    add_elastic(bench, "j", 2);
    ASSERT_EQ(status_of(bench, "j")["ready"], "2/2") << status_of(bench, "j").dump(1);
    if (restarted) bench.restart_operator();
    bench.settle();
    bench.phases.clear();
    scale(bench, "j", 1);
    EXPECT_EQ(status_of(bench, "j")["ready"], "1/1") << status_of(bench, "j").dump(1);
    EXPECT_TRUE(std::ranges::find(bench.phases, "Queued") == bench.phases.end())
        << "it keeps its node, whoever waits for one";
  }
}

TEST(ElasticJob, TellsWhyItRunsSmallerAndThatItWasResized) {
  ControllerBench bench;
  bench.add_node("n0", 1);
  add_elastic(bench, "j", 2);
  const auto debug = [&] {
    const http::Response answer = debug_job("/debug/jobs/default/j", bench.controller(),
                                            bench.queue(), bench.clock(), {true, "operator-0"});
    return json::parse(answer.body);
  };
  const json waits = debug()["waitsFor"];
  ASSERT_EQ(waits.size(), 1U) << waits.dump(1);
  EXPECT_EQ(waits[0]["what"], "replicas");
  EXPECT_EQ(waits[0]["reason"], "RunsSmaller");
  EXPECT_EQ(waits[0]["message"], status_of(bench, "j")["elastic"]["message"]);
  const auto resizes = [&] {
    const std::string text =
        operator_metrics(state_of(bench.controller(), bench.stores(), bench.queue()));
    const std::string name = "\npaceline_operator_resizes_total ";
    const auto at = text.find(name);
    return at == std::string::npos ? std::string() : text.substr(at + name.size(), 2);
  };
  EXPECT_EQ(resizes(), "0\n");
  bench.add_node("n1", 1);
  bench.advance(std::chrono::minutes(6));
  EXPECT_EQ(debug()["waitsFor"], json::array());
  EXPECT_EQ(resizes(), "1\n");
}

TEST(ElasticJob, GoesOnWithoutALostNode) {
  ControllerBench bench;
  for (const char* node : {"n0", "n1", "n2"}) bench.add_node(node, 1);
  add_elastic(bench, "j", 3, 2);
  ASSERT_EQ(status_of(bench, "j")["ready"], "3/3");
  set_node_ready(bench, "n1", false);
  json status = status_of(bench, "j");
  EXPECT_EQ(status["ready"], "2/2") << status.dump(1);
  EXPECT_EQ(status["phase"], "Running");
  EXPECT_EQ(status["restarts"], 0);
  set_node_ready(bench, "n1", true);
  bench.advance(std::chrono::minutes(6));
  status = status_of(bench, "j");
  EXPECT_EQ(status["ready"], "3/3") << status.dump(1);
  EXPECT_EQ(status["disruptions"], 1);
}

TEST(ElasticJob, RestsWhenItHasWhatItCanGet) {
  ControllerBench bench;
  bench.add_node("n0", 1);
  add_elastic(bench, "j", 3);
  bench.advance(std::chrono::minutes(6));
  const std::uint64_t before = bench.writes();
  for (int i = 0; i < 20; ++i) bench.advance(std::chrono::minutes(1));
  EXPECT_EQ(bench.writes(), before);
}

TEST(ElasticJob, AnotherOperatorGoesOnWithTheResize) {
  ControllerBench bench;
  for (const char* node : {"n0", "n1", "n2"}) bench.add_node(node, 1);
  add_elastic(bench, "j", 3);
  bench.pods_linger = true;
  scale(bench, "j", 2);
  EXPECT_EQ(status_of(bench, "j")["reason"], "Resizing") << status_of(bench, "j").dump(1);
  EXPECT_EQ(bench.pods("j").size(), 3U);
  bench.restart_operator();
  bench.settle();
  EXPECT_EQ(bench.pods("j").size(), 3U);
  bench.pods_linger = false;
  bench.settle();
  EXPECT_EQ(status_of(bench, "j")["ready"], "2/2") << status_of(bench, "j").dump(1);
}

}  // namespace
}  // namespace paceline::apply
