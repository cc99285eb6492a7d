// SPDX-License-Identifier: Apache-2.0
// Where the replacement of a lost pod goes, and what it waits for.
#include <gtest/gtest.h>

#include "tests/unit/operator/controller_bench.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr const char* kTaint = R"({"spec":{"taints":[{"key":"repair","effect":"NoSchedule"}]}})";

std::string node_of(const ControllerBench& bench, const std::string& pod) {
  for (const json& known : bench.pods("j")) {
    if (known["metadata"]["name"] == pod) return known["spec"].value("nodeName", "");
  }
  return "none";
}

void lose(ControllerBench& bench, const std::string& pod) {
  ASSERT_TRUE(bench.cluster().erase(kube::kPods, "default", pod));
  bench.settle();
}

/// A pod of somebody else, bound to a node.
void add_foreign(ControllerBench& bench, const std::string& name, const std::string& node,
                 int cpu) {
  bench.create(
      kube::kPods, "default",
      {{"metadata", {{"name", name}}},
       {"spec",
        {{"nodeName", node},
         {"containers",
          json::array(
              {{{"name", "c"}, {"image", "i"}, {"resources", {{"requests", {{"cpu", cpu}}}}}}})}}},
       {"status", {{"phase", "Running"}}}});
}

TEST(Replacement, ReturnsToItsOldNode) {
  ControllerBench bench;
  bench.add_node("n0", 1);
  bench.add_node("n1", 1);
  bench.add_node("n2", 1);
  bench.add_job("j");
  bench.settle();
  const std::string before = node_of(bench, "j-w-1-0");
  lose(bench, "j-w-1-0");
  EXPECT_EQ(node_of(bench, "j-w-1-1"), before);
}

TEST(Replacement, HonoursATaintThatCameLater) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_node("n1", 2);
  bench.add_job("j");
  bench.settle();
  ASSERT_EQ(node_of(bench, "j-w-1-0"), "n0");
  bench.cluster().poke(kube::kNodes, "", "n0", kTaint);
  bench.settle();
  lose(bench, "j-w-1-0");
  EXPECT_EQ(node_of(bench, "j-w-1-1"), "n1");
  EXPECT_EQ(node_of(bench, "j-w-0-0"), "n0");
}

TEST(Replacement, WaitsByNameUntilTheTaintIsGone) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_job("j");
  bench.settle();
  bench.cluster().poke(kube::kNodes, "", "n0", kTaint);
  bench.settle();
  lose(bench, "j-w-1-0");
  const json waiting = bench.condition("j", "Restarting");
  EXPECT_EQ(waiting["reason"], "WaitingForNode");
  EXPECT_NE(waiting["message"].get<std::string>().find("taint repair"), std::string::npos)
      << waiting.dump(1);
  // A taint is replaced by another of the same number: the change must be seen.
  bench.cluster().poke(kube::kNodes, "", "n0",
                       R"({"spec":{"taints":[{"key":"soft","effect":"PreferNoSchedule"}]}})");
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
  EXPECT_EQ(node_of(bench, "j-w-0-0"), "n0") << "the gang was not rebuilt";
}

TEST(Replacement, GoesWhereThereIsRoom) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_node("n1", 2);
  bench.add_job("j");
  bench.settle();
  ASSERT_EQ(node_of(bench, "j-w-1-0"), "n0");
  ASSERT_TRUE(bench.cluster().erase(kube::kPods, "default", "j-w-1-0"));
  add_foreign(bench, "foreign", "n0", 1);
  bench.settle();
  EXPECT_EQ(node_of(bench, "j-w-1-1"), "n1");
}

TEST(Replacement, GoesNearItsNeighboursInRank) {
  ControllerBench bench;
  const auto add = [&](const std::string& name) {
    bench.add_node(name, 1, {{"paceline.dev/leaf", name.substr(0, 1)}});
  };
  for (const char* name : {"a0", "a1", "b0", "b1", "b2"}) add(name);
  const json container = {{"name", "trainer"},
                          {"image", "i"},
                          {"command", {"train"}},
                          {"resources", {{"requests", {{"cpu", 1}}}}}};
  const json pod = {{"spec", {{"containers", json::array({container})}}}};
  bench.add_job("j",
                {{"roles", json::array({{{"name", "w"}, {"replicas", 5}, {"template", pod}}})}});
  bench.settle();
  ASSERT_TRUE(node_of(bench, "j-w-0-0").starts_with("b"));
  const std::string old = node_of(bench, "j-w-4-0");
  ASSERT_TRUE(old.starts_with("a")) << old;
  add("a2");
  add("b3");
  bench.cluster().poke(kube::kNodes, "", old, R"({"spec":{"unschedulable":true}})");
  lose(bench, "j-w-4-0");
  EXPECT_EQ(node_of(bench, "j-w-4-1"), "a2") << "though most of the others are under leaf b";
}

TEST(Replacement, TwoOfAGangWithOnePodPerNodeDoNotShareOne) {
  ControllerBench bench;
  for (const char* name : {"n0", "n1", "n2", "n3"}) bench.add_node(name, 4);
  bench.add_job("j", {{"scheduling", {{"podsPerNode", 1}}}});
  bench.settle();
  for (const char* pod : {"j-w-0-0", "j-w-1-0"}) {
    bench.cluster().poke(kube::kNodes, "", node_of(bench, pod),
                         R"({"spec":{"unschedulable":true}})");
    ASSERT_TRUE(bench.cluster().erase(kube::kPods, "default", pod));
  }
  bench.settle();
  ASSERT_EQ(bench.pods("j").size(), 2U) << bench.job("j")["status"].dump(1);
  EXPECT_NE(node_of(bench, "j-w-0-1"), node_of(bench, "j-w-1-1"));
}

TEST(Replacement, ARefusalIsWaitedForAndTheGangStays) {
  ControllerBench bench;
  bench.add_node("n0", 4);
  bench.create(kube::kResourceQuotas, "default",
               {{"metadata", {{"name", "q"}}}, {"spec", {{"hard", {{"pods", "2"}}}}}});
  bench.settle();
  bench.add_job("j", {{"scheduling", {{"gangTimeout", "5m"}}}});
  bench.settle();
  ASSERT_EQ(bench.job("j")["status"]["phase"], "Running");
  // The planner does not know that a foreign pod has filled the quota: the API server refuses.
  bench.quota_lags = true;
  ASSERT_TRUE(bench.cluster().erase(kube::kPods, "default", "j-w-1-0"));
  add_foreign(bench, "foreign", "n0", 1);
  bench.cluster().poke(kube::kResourceQuotas, "default", "q",
                       R"({"status":{"used":{"pods":"1"}}})");
  bench.settle();
  bench.advance(seconds(30));
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Restarting");
  EXPECT_NE(bench.condition("j", "Restarting").dump().find("exceeded quota"), std::string::npos);
  EXPECT_EQ(node_of(bench, "j-w-0-0"), "n0") << "the rest of the gang stays";
  bench.cluster().erase(kube::kPods, "default", "foreign");
  bench.settle();
  bench.advance(seconds(60));
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
  EXPECT_EQ(node_of(bench, "j-w-0-0"), "n0") << "the gang was not rebuilt";
  EXPECT_EQ(bench.job("j")["status"]["restarts"], 0);
}

TEST(Replacement, ComesAlthoughThePodThatEndedCannotBeDeleted) {
  ControllerBench bench;
  bench.add_node("n0", 4);
  bench.add_job("j", {{"cleanPodPolicy", "Running"}});
  bench.settle();
  bench.cluster().set_faults([](const http::Request& request) -> std::optional<kube::Fault> {
    if (request.method != "DELETE" || !request.target.contains("/pods/")) return std::nullopt;
    return kube::Fault{.status = 403, .message = "a policy forbids it"};
  });
  const json ended = {{"terminated", {{"exitCode", 137}, {"reason", "Error"}}}};
  bench.cluster().poke(
      kube::kPods, "default", "j-w-1-0",
      json{{"status",
            {{"phase", "Failed"},
             {"containerStatuses", json::array({{{"name", "trainer"}, {"state", ended}}})}}}}
          .dump());
  bench.settle();
  bench.advance(seconds(60));
  EXPECT_EQ(node_of(bench, "j-w-1-1"), "n0") << bench.job("j")["status"].dump(1);
  EXPECT_EQ(bench.pods("j").size(), 3U) << "the delete failed";
  bench.cluster().set_faults(nullptr);
  bench.advance(std::chrono::minutes(10));
  EXPECT_EQ(bench.pods("j").size(), 2U) << "it is tried again";
}

TEST(Replacement, WaitsForAFullQuotaWithoutATry) {
  ControllerBench bench;
  bench.add_node("n0", 4);
  bench.create(kube::kResourceQuotas, "default",
               {{"metadata", {{"name", "q"}}}, {"spec", {{"hard", {{"pods", "2"}}}}}});
  bench.settle();
  bench.add_job("j");
  bench.settle();
  ASSERT_EQ(bench.job("j")["status"]["phase"], "Running");
  ASSERT_TRUE(bench.cluster().erase(kube::kPods, "default", "j-w-1-0"));
  add_foreign(bench, "foreign", "n0", 1);
  bench.settle();
  const json waiting = bench.condition("j", "Restarting");
  EXPECT_EQ(waiting["reason"], "WaitingForNode") << waiting.dump(1);
  EXPECT_NE(waiting.dump().find("quota q: pods: 1 needed, 0 of 2 left"), std::string::npos)
      << waiting.dump(1);
  bench.cluster().erase(kube::kPods, "default", "foreign");
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
}

TEST(Replacement, KeepsTheRuntimeOfItsGangAfterAnUpgrade) {
  const auto runtime_of = [](const ControllerBench& bench, const std::string& name) {
    for (const json& pod : bench.pods("j")) {
      if (pod["metadata"]["name"] == name)
        return pod["spec"]["initContainers"][0]["image"].get<std::string>();
    }
    return std::string();
  };
  ControllerBench bench;
  bench.add_node("n0", 4);
  bench.upgrade_operator("runtime:1");
  bench.add_job("j");
  bench.settle();
  ASSERT_EQ(runtime_of(bench, "j-w-1-0"), "runtime:1");
  bench.upgrade_operator("runtime:2");
  bench.settle();
  lose(bench, "j-w-1-0");
  EXPECT_EQ(runtime_of(bench, "j-w-1-1"), "runtime:1") << "the gang runs one runtime";
}

TEST(Replacement, GangTimeoutEndsTheWait) {
  ControllerBench bench;
  bench.add_node("n0", 4);
  bench.create(kube::kResourceQuotas, "default",
               {{"metadata", {{"name", "q"}}}, {"spec", {{"hard", {{"pods", "2"}}}}}});
  bench.settle();
  bench.add_job("j", {{"scheduling", {{"gangTimeout", "1m"}}}});
  bench.settle();
  ASSERT_TRUE(bench.cluster().erase(kube::kPods, "default", "j-w-1-0"));
  add_foreign(bench, "foreign", "n0", 1);
  bench.settle();
  bench.advance(seconds(61));
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Queued") << bench.job("j")["status"].dump(1);
  EXPECT_TRUE(bench.pods("j").empty());
}

}  // namespace
}  // namespace paceline::apply
