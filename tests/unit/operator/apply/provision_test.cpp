// SPDX-License-Identifier: Apache-2.0
// A job that waits for nodes asks the cluster's autoscaler by placeholders, and has none otherwise.
#include <gtest/gtest.h>

#include "common/base/timestamp.hpp"
#include "tests/unit/operator/controller_bench.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;
using std::chrono::minutes;
using std::chrono::seconds;

json asking(const char* provision = "Placeholders") {
  return {{"scheduling", {{"provision", provision}}}};
}

json of(int replicas, int cpu, json more = asking()) {
  more["roles"] = json::array(
      {{{"name", "w"},
        {"replicas", replicas},
        {"template",
         {{"spec",
           {{"nodeSelector", {{"pool", "gpu"}}},
            {"tolerations", json::array({{{"key", "gpu"}, {"operator", "Exists"}}})},
            {"containers", json::array({{{"name", "trainer"},
                                         {"image", "i"},
                                         {"command", {"train"}},
                                         {"resources", {{"requests", {{"cpu", cpu}}}}}}})}}}}}}});
  return more;
}

const json kPool = {{"pool", "gpu"}};

json status(const ControllerBench& bench, const std::string& job) {
  return bench.job(job)["status"];
}

void ask(ControllerBench& bench) { bench.advance(seconds(6)); }

TEST(Provision, AJobOnAClusterOfNoNodesStartsWhenTheyCome) {
  ControllerBench bench;
  bench.add_job("j", of(2, 3));
  bench.settle();
  EXPECT_TRUE(bench.placeholders("j").empty()) << "nodes are asked for after a moment";
  ask(bench);
  ASSERT_EQ(bench.placeholders("j").size(), 2U) << status(bench, "j").dump(1);
  EXPECT_EQ(status(bench, "j")["reason"], "WaitingForNodes");

  bench.add_node("n0", 4, kPool);
  bench.advance(seconds(2));  // counts alone are written once a second
  EXPECT_EQ(status(bench, "j")["phase"], "Queued");
  EXPECT_TRUE(bench.pods("j").empty()) << "all of a gang or nothing";
  const std::string told = status(bench, "j")["message"];
  EXPECT_TRUE(told.starts_with("needs 2 pods with 3 cpu each (w); ")) << told;
  EXPECT_NE(told.find("1 of 2 placeholder pods hold a node"), std::string::npos) << told;

  bench.add_node("n1", 4, kPool);
  bench.settle();
  EXPECT_EQ(status(bench, "j")["phase"], "Running") << status(bench, "j").dump(1);
  EXPECT_EQ(bench.pods("j").size(), 2U);
  EXPECT_TRUE(bench.placeholders("j").empty());
}

json elastic(int replicas, int cpu) {
  json spec = of(replicas, cpu);
  spec["roles"][0].erase("replicas");
  spec["roles"].push_back({{"name", "s"},
                           {"kind", "ParameterServer"},
                           {"replicas", 1},
                           {"template", spec["roles"][0]["template"]}});
  spec["elastic"] = {{"role", "w"}, {"replicas", replicas}, {"minReplicas", 1}, {"maxReplicas", 8}};
  return spec;
}

TEST(Provision, AJobAsksAlthoughTheClockOfAnEarlierLeaderWasAhead) {
  ControllerBench bench;
  bench.add_job("j", of(2, 3));
  bench.settle();
  json conditions = status(bench, "j")["conditions"];
  for (json& condition : conditions)
    condition["lastTransitionTime"] = format_time(bench.now() + std::chrono::hours(1));
  bench.cluster().poke(kube::kTrainingJobs, "default", "j",
                       json{{"status", {{"conditions", conditions}}}}.dump());
  bench.restart_operator();
  bench.settle();
  ask(bench);
  EXPECT_EQ(bench.placeholders("j").size(), 2U) << status(bench, "j").dump(1);
}

TEST(Provision, AnElasticJobThatRunsSmallerAsksForNodes) {
  ControllerBench bench;
  bench.add_node("n0", 4, kPool);
  bench.add_node("n1", 4, kPool);
  bench.add_job("j", elastic(3, 3));
  bench.settle();
  EXPECT_EQ(status(bench, "j")["ready"], "2/2") << status(bench, "j").dump(1);
  ask(bench);
  EXPECT_TRUE(bench.placeholders("j").empty()) << "room may come by itself";
  bench.advance(minutes(6));
  ASSERT_EQ(bench.placeholders("j").size(), 2U) << status(bench, "j").dump(1);
  const json held = bench.placeholders("j")[0];
  EXPECT_EQ(held["metadata"]["name"], "j-placeholder-1") << "rank 0 is the first worker";
  std::string told = status(bench, "j")["elastic"]["message"];
  EXPECT_TRUE(told.starts_with("runs with 1 of 3 replicas: needs 2 pods with 3 cpu each (w); "))
      << told;
  EXPECT_NE(told.find("0 of 2 placeholder pods hold a node"), std::string::npos) << told;
  bench.restart_operator();
  bench.settle();
  EXPECT_EQ(bench.placeholders("j")[0]["metadata"]["uid"], held["metadata"]["uid"]);

  bench.add_node("n2", 4, kPool);
  bench.add_node("n3", 4, kPool);
  bench.settle();
  EXPECT_EQ(status(bench, "j")["ready"], "4/4") << status(bench, "j").dump(1);
  EXPECT_TRUE(bench.placeholders("j").empty());
  EXPECT_FALSE(status(bench, "j")["elastic"].contains("message"));
}

TEST(Provision, AnElasticJobThatWantsNoMoreGivesItsPlaceholdersUp) {
  ControllerBench bench;
  bench.add_node("n0", 4, kPool);
  bench.add_node("n1", 4, kPool);
  bench.add_job("j", elastic(2, 3));
  bench.settle();
  bench.advance(minutes(6));
  ASSERT_EQ(bench.placeholders("j").size(), 1U) << status(bench, "j").dump(1);
  bench.patch_job("j", {{"spec", {{"elastic", {{"replicas", 1}}}}}});
  bench.settle();
  EXPECT_TRUE(bench.placeholders("j").empty());
  EXPECT_FALSE(status(bench, "j")["elastic"].contains("message"));
}

TEST(Provision, APlaceholderIsNotTakenForThatOfAnotherRole) {
  ControllerBench bench;
  json spec = elastic(1, 3);  // the server follows the workers
  json& server = spec["roles"][1]["template"]["spec"]["containers"][0];
  server["resources"]["requests"]["cpu"] = 1;
  bench.add_job("j", spec);
  bench.settle();
  ask(bench);
  ASSERT_EQ(bench.placeholders("j").size(), 2U) << status(bench, "j").dump(1);
  const json first = bench.placeholders("j")[0]["metadata"]["uid"];
  bench.patch_job("j", {{"spec", {{"elastic", {{"replicas", 2}, {"minReplicas", 2}}}}}});
  bench.settle();
  const std::vector<json> held = bench.placeholders("j");
  ASSERT_EQ(held.size(), 3U) << status(bench, "j").dump(1);
  EXPECT_EQ(held[0]["metadata"]["uid"], first);
  std::vector<std::string> cpus;
  for (const json& pod : held)
    cpus.push_back(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]);
  EXPECT_EQ(cpus, (std::vector<std::string>{"3", "3", "1"}));
}

TEST(Provision, APlaceholderHasTheShapeOfItsPod) {
  ControllerBench bench;
  bench.cluster().set_admission([](const kube::Resource& resource, json& object) {
    const bool gang = object["metadata"].value("labels", json()).contains("paceline.dev/job");
    if (resource.plural == kube::kPods.plural && gang) object["spec"]["overhead"] = {{"cpu", "1"}};
  });
  json spec = of(1, 3);
  spec["scheduling"]["podsPerNode"] = 2;
  bench.add_job("j", spec);
  bench.settle();
  ask(bench);
  ASSERT_EQ(bench.placeholders("j").size(), 1U);
  const json pod = bench.placeholders("j")[0];
  EXPECT_EQ(pod["metadata"]["ownerReferences"][0]["name"], "j");
  const json& container = pod["spec"]["containers"][0];
  EXPECT_EQ(container["resources"]["requests"]["cpu"], "4") << "with what admission adds";
  EXPECT_EQ(container["resources"]["limits"], container["resources"]["requests"]);
  EXPECT_EQ(pod["spec"]["nodeSelector"], kPool);
  EXPECT_EQ(pod["spec"]["tolerations"][0]["key"], "gpu");
  EXPECT_EQ(pod["spec"]["priorityClassName"], "paceline-placeholder");
  const json& cap = pod["spec"]["topologySpreadConstraints"][0];
  EXPECT_EQ(cap["maxSkew"], 2);
  EXPECT_EQ(cap["minDomains"], 2147483647) << "or the skew would not count from 0";
}

TEST(Provision, WhatTakesPlaceholdersAway) {
  const struct {
    const char* name;
    std::function<void(ControllerBench&)> event;
  } cases[] = {
      {"the job is deleted", [](ControllerBench& bench) { bench.remove_job("j"); }},
      {"it is suspended",
       [](ControllerBench& bench) { bench.patch_job("j", {{"spec", {{"suspend", true}}}}); }},
      {"it is deleted while no operator runs",
       [](ControllerBench& bench) {
         bench.remove_job("j");
         bench.restart_operator();
       }},
      {"it is suspended while no operator runs",
       [](ControllerBench& bench) {
         bench.patch_job("j", {{"spec", {{"suspend", true}}}});
         bench.restart_operator();
       }},
  };
  for (const auto& [name, event] : cases) {
    ControllerBench bench;
    bench.add_job("j", of(2, 3));
    bench.settle();
    ask(bench);
    bench.add_node("n0", 4, kPool);
    bench.settle();
    ASSERT_EQ(bench.placeholders("j").size(), 2U) << name;
    event(bench);
    bench.settle();
    EXPECT_TRUE(bench.placeholders("j").empty()) << name;
  }
}

TEST(Provision, ANewOperatorGoesOnWithThePlaceholdersThatAreThere) {
  ControllerBench bench;
  bench.add_job("j", of(2, 3));
  bench.settle();
  ask(bench);
  const std::vector<json> before = bench.placeholders("j");
  bench.restart_operator();
  bench.settle();
  ask(bench);
  ASSERT_EQ(bench.placeholders("j").size(), 2U);
  EXPECT_EQ(bench.placeholders("j")[0]["metadata"]["uid"], before[0]["metadata"]["uid"]);
  const std::uint64_t writes = bench.writes();
  bench.advance(minutes(2));
  EXPECT_EQ(bench.writes(), writes) << "nothing is written while nothing changes";
}

TEST(Provision, WhoAsksForNodes) {
  const struct {
    const char* name;
    const char* provision;
    bool autoscaler;
    bool expected;
  } cases[] = {
      {"Auto, no autoscaler is known", "Auto", false, false},
      {"Auto, Cluster Autoscaler", "Auto", true, true},
      {"Disabled", "Disabled", true, false},
      {"Placeholders", "Placeholders", false, true},
  };
  for (const auto& [name, provision, autoscaler, expected] : cases) {
    ControllerBench bench;
    if (autoscaler) {
      bench.create(kube::kConfigMaps, "kube-system",
                   {{"metadata", {{"name", "cluster-autoscaler-status"}}}});
    }
    bench.add_job("j", of(2, 3, asking(provision)));
    bench.settle();
    ask(bench);
    EXPECT_EQ(bench.placeholders("j").size(), expected ? 2U : 0U) << name;
    EXPECT_EQ(status(bench, "j")["reason"], expected ? "WaitingForNodes" : "TooLarge") << name;
  }
}

TEST(Provision, ARunningElasticJobNoticesAnAutoscalerThatIsInstalledLater) {
  ControllerBench bench;
  bench.add_node("n0", 4, kPool);
  bench.add_node("n1", 4, kPool);
  json spec = elastic(3, 3);
  spec["scheduling"]["provision"] = "Auto";
  bench.add_job("j", spec);
  bench.settle();
  bench.advance(minutes(6));
  ASSERT_EQ(status(bench, "j")["ready"], "2/2") << status(bench, "j").dump(1);
  ASSERT_TRUE(bench.placeholders("j").empty());
  bench.create(kube::kConfigMaps, "kube-system",
               {{"metadata", {{"name", "cluster-autoscaler-status"}}}});
  bench.advance(minutes(6));
  EXPECT_EQ(bench.placeholders("j").size(), 2U) << status(bench, "j").dump(1);
}

TEST(Provision, ALaterJobDoesNotTakeTheRoomThatIsHeld) {
  ControllerBench bench;
  bench.add_job("first", of(2, 3));
  bench.settle();
  ask(bench);
  bench.add_node("n0", 4, kPool);
  bench.settle();
  bench.add_job("second", of(1, 2, asking("Disabled")));
  bench.settle();
  EXPECT_EQ(status(bench, "second")["phase"], "Queued");
  bench.add_node("n1", 4, kPool);
  bench.settle();
  EXPECT_EQ(status(bench, "first")["phase"], "Running");
}

TEST(Provision, ALaterJobDoesNotTakeThePortsThatAreHeld) {
  const auto in_host_network = [](json spec) {
    spec["roles"][0]["template"]["spec"]["hostNetwork"] = true;
    return spec;
  };
  ControllerBench bench;
  json ports = json::array();
  for (int port = 16000; port < 19900; port += 100)  // a pod of another kind leaves one block
    ports.push_back({{"containerPort", port}, {"hostPort", port}});
  const json container = {
      {"name", "c"}, {"image", "i"}, {"ports", ports}, {"resources", {{"requests", {{"cpu", 0}}}}}};
  bench.create(kube::kPods, "default",
               {{"metadata", {{"name", "other"}}},
                {"spec", {{"nodeName", "n0"}, {"containers", json::array({container})}}},
                {"status", {{"phase", "Running"}}}});
  bench.add_job("first", in_host_network(of(2, 3)));
  bench.settle();
  ask(bench);
  bench.add_node("n0", 4, kPool);
  bench.settle();
  bench.add_job("second", in_host_network(of(1, 1, asking("Disabled"))));
  bench.settle();
  EXPECT_EQ(status(bench, "second")["phase"], "Queued");
  bench.add_node("n1", 4, kPool);
  bench.settle();
  EXPECT_EQ(status(bench, "first")["phase"], "Running") << status(bench, "first").dump(1);
}

TEST(Provision, AnUrgentJobTakesTheRoomThatIsHeld) {
  ControllerBench bench;
  bench.create(kube::kPriorityClasses, "",
               {{"metadata", {{"name", "high"}}}, {"value", 10}, {"preemptionPolicy", "Never"}});
  bench.add_job("patient", of(2, 3));
  bench.settle();
  ask(bench);
  bench.add_node("n0", 4, kPool);
  bench.settle();
  json urgent = of(1, 3, asking("Disabled"));
  urgent["scheduling"]["priorityClassName"] = "high";
  bench.add_job("urgent", urgent);
  bench.settle();
  EXPECT_EQ(status(bench, "urgent")["phase"], "Running");
  std::size_t bound = 0;
  for (const json& pod : bench.placeholders("patient")) bound += pod["spec"].contains("nodeName");
  EXPECT_EQ(bound, 0U);
  EXPECT_EQ(bench.placeholders("patient").size(), 2U) << "asked for again";
}

TEST(Provision, APlaceholderLeavesANodeThatTheGangCannotUse) {
  ControllerBench bench;
  bench.add_job("j", of(2, 3));
  bench.settle();
  ask(bench);
  bench.add_node("n0", 4, kPool);
  bench.settle();
  bench.cluster().poke(kube::kNodes, "", "n0", R"({"spec":{"unschedulable":true}})");
  bench.settle();
  for (const json& pod : bench.placeholders("j"))
    EXPECT_FALSE(pod["spec"].contains("nodeName")) << pod["metadata"]["name"];
  EXPECT_EQ(bench.placeholders("j").size(), 2U);
}

TEST(Provision, APlaceholderOnANodeThatIsNotSeenYetIsNotDeletedByForce) {
  ControllerBench bench;
  bench.add_job("j", of(2, 3));
  bench.settle();
  ask(bench);
  bench.add_node("n0", 4, kPool);
  bench.settle();
  ASSERT_TRUE(bench.placeholders("j")[0]["spec"].contains("nodeName"));
  bench.pods_linger = true;
  bench.cluster().erase(kube::kNodes, "", "n0");  // as if the node's watch lagged
  bench.patch_job("j", {{"spec", {{"suspend", true}}}});
  bench.settle();
  ASSERT_EQ(bench.placeholders("j").size(), 1U) << "the other one was on no node";
  EXPECT_TRUE(bench.placeholders("j")[0]["metadata"].contains("deletionTimestamp"));
}

TEST(Provision, TheNamespacesQuotaIsNotSpentTwice) {
  ControllerBench bench;
  bench.create(kube::kResourceQuotas, "default",
               {{"metadata", {{"name", "q"}}}, {"spec", {{"hard", {{"pods", "2"}}}}}});
  bench.settle();
  bench.add_job("j", of(2, 3));
  bench.settle();
  ask(bench);
  ASSERT_EQ(bench.placeholders("j").size(), 2U) << status(bench, "j").dump(1);
  bench.add_node("n0", 4, kPool);
  bench.add_node("n1", 4, kPool);
  bench.settle();
  bench.advance(seconds(2));
  EXPECT_EQ(status(bench, "j")["phase"], "Running") << status(bench, "j").dump(1);
  EXPECT_TRUE(bench.placeholders("j").empty());
}

TEST(Provision, APlaceholderThatHasEndedAndStaysHoldsNoGangBack) {
  ControllerBench bench;
  bench.create(kube::kResourceQuotas, "default",
               {{"metadata", {{"name", "q"}}}, {"spec", {{"hard", {{"pods", "2"}}}}}});
  bench.settle();
  bench.add_job("j", of(2, 3));
  bench.settle();
  ask(bench);
  bench.add_node("n0", 4, kPool);
  bench.pods_linger = true;  // as with a finalizer of another controller
  bench.add_node("n1", 4, kPool);
  bench.settle();
  ASSERT_EQ(bench.placeholders("j").size(), 2U);
  EXPECT_TRUE(bench.pods("j").empty()) << "they run, and use the quota";
  for (const json& pod : bench.placeholders("j"))
    bench.cluster().poke(kube::kPods, "default", pod["metadata"]["name"].get<std::string>(),
                         R"({"status":{"phase":"Failed"}})");
  bench.settle();
  bench.advance(seconds(2));
  EXPECT_EQ(status(bench, "j")["phase"], "Running") << status(bench, "j").dump(1);
}

TEST(Provision, APlacementThatWaitsIsDroppedIfItsNodeIsCordoned) {
  ControllerBench bench;
  bench.create(kube::kResourceQuotas, "default",
               {{"metadata", {{"name", "q"}}}, {"spec", {{"hard", {{"pods", "2"}}}}}});
  bench.settle();
  bench.add_job("j", of(2, 3));
  bench.settle();
  ask(bench);
  ASSERT_EQ(bench.placeholders("j").size(), 2U) << status(bench, "j").dump(1);
  bench.add_node("n0", 4, kPool);
  bench.pods_linger = true;
  bench.add_node("n1", 4, kPool);
  bench.settle();
  ASSERT_EQ(bench.placeholders("j").size(), 2U) << "they stop, and use the quota until then";
  bench.cluster().poke(kube::kNodes, "", "n1", R"({"spec":{"unschedulable":true}})");
  bench.settle();
  bench.pods_linger = false;
  bench.settle();
  bench.advance(seconds(2));
  EXPECT_EQ(status(bench, "j")["phase"], "Queued") << status(bench, "j").dump(1);
  EXPECT_TRUE(bench.pods("j").empty());
  bench.add_node("n2", 4, kPool);
  bench.settle();
  bench.advance(seconds(2));
  EXPECT_EQ(status(bench, "j")["phase"], "Running") << status(bench, "j").dump(1);
}

TEST(Provision, AJobThatComesLaterLeavesTheQuotaFirst) {
  ControllerBench bench;
  bench.create(kube::kPriorityClasses, "",
               {{"metadata", {{"name", "high"}}}, {"value", 10}, {"preemptionPolicy", "Never"}});
  bench.create(kube::kResourceQuotas, "default",
               {{"metadata", {{"name", "q"}}}, {"spec", {{"hard", {{"pods", "3"}}}}}});
  bench.add_node("n0", 4, kPool);
  bench.settle();
  bench.add_job("patient", of(2, 4));
  bench.settle();
  ask(bench);
  ASSERT_EQ(bench.placeholders("patient").size(), 2U) << status(bench, "patient").dump(1);
  json urgent = of(2, 1, asking("Disabled"));
  urgent["scheduling"]["priorityClassName"] = "high";
  bench.add_job("urgent", urgent);
  bench.settle();
  bench.advance(seconds(2));
  EXPECT_EQ(status(bench, "urgent")["phase"], "Running") << status(bench, "urgent").dump(1);
  EXPECT_EQ(status(bench, "urgent")["attempt"], 0) << "none of its pods was refused";
  EXPECT_TRUE(bench.placeholders("patient").empty()) << "the quota admits one of the two";
}

TEST(Provision, TheFirstJobsOfTheQueueAsk) {
  ControllerBench bench;
  for (int i = 0; i < 10; ++i) {
    bench.add_job("j" + std::to_string(i), of(1, 3));
    bench.advance(seconds(1));
  }
  ask(bench);
  int asking = 0;
  for (int i = 0; i < 10; ++i)
    asking += static_cast<int>(bench.placeholders("j" + std::to_string(i)).size());
  EXPECT_EQ(asking, 8);
  EXPECT_TRUE(bench.placeholders("j9").empty());
  bench.remove_job("j0");
  bench.settle();
  ask(bench);
  EXPECT_EQ(bench.placeholders("j8").size(), 1U);
}

TEST(Provision, ARefusedPlaceholderIsTold) {
  ControllerBench bench;
  bench.cluster().set_faults([](const http::Request& request) -> std::optional<kube::Fault> {
    if (request.body.find("paceline.dev/placeholder-for") == std::string::npos) return std::nullopt;
    return kube::Fault{.status = 403, .message = "a policy forbids it"};
  });
  bench.add_job("j", of(1, 3));
  bench.settle();
  ask(bench);
  const std::string told = status(bench, "j")["message"];
  EXPECT_NE(told.find("; asking for nodes was refused: "), std::string::npos) << told;
  EXPECT_TRUE(told.ends_with("a policy forbids it")) << told;
  bench.add_node("n0", 4, kPool);
  bench.settle();
  EXPECT_EQ(status(bench, "j")["phase"], "Running");
}

TEST(Provision, APodOfAnotherOwnerIsNotTakenForAPlaceholder) {
  ControllerBench bench;
  const json container = {
      {"name", "c"}, {"image", "i"}, {"resources", {{"requests", {{"cpu", 1}}}}}};
  bench.create(kube::kPods, "default",
               {{"metadata", {{"name", "j-placeholder-0"}}},
                {"spec", {{"containers", json::array({container})}}},
                {"status", {{"phase", "Running"}}}});
  bench.add_job("j", of(1, 3));
  bench.settle();
  ask(bench);
  const std::string told = status(bench, "j")["message"];
  EXPECT_TRUE(
      told.ends_with("; asking for nodes was refused: Pod j-placeholder-0 exists and does "
                     "not belong to this job; delete it, or rename the job"))
      << told;
  bench.cluster().erase(kube::kPods, "default", "j-placeholder-0");
  bench.advance(minutes(2));
  EXPECT_EQ(bench.placeholders("j").size(), 1U) << status(bench, "j").dump(1);
}

TEST(Provision, PatienceEndsInWords) {
  ControllerBench bench;
  bench.add_job("j", of(1, 3));
  bench.settle();
  ask(bench);
  bench.advance(minutes(11));
  const std::string told = status(bench, "j")["message"];
  EXPECT_NE(told.find("`kubectl describe pod j-placeholder-0`"), std::string::npos) << told;
}

}  // namespace
}  // namespace paceline::apply
