// SPDX-License-Identifier: Apache-2.0
// Jobs whose queue is a LocalQueue of Kueue. A fake Kueue admits and evicts by writing the status
// of the Workload, as Kueue's controllers do.
#include "common/kube/api/kueue.hpp"

#include <gtest/gtest.h>

#include "tests/unit/operator/controller_bench.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;

const json kLabelled = {{"metadata", {{"labels", {{"kueue.x-k8s.io/queue-name", "team"}}}}}};

class KueueBench : public ControllerBench {
 public:
  KueueBench() {
    add_node("cpu", 8, {{"pool", "cpu"}});
    add_node("gpu-a", 8, {{"pool", "gpu"}, {"rack", "a"}});
    add_node("gpu-b", 8, {{"pool", "gpu"}, {"rack", "b"}});
    create(kube::kLocalQueues, "default",
           {{"metadata", {{"name", "team"}}}, {"spec", {{"clusterQueue", "all"}}}});
    create(kube::kResourceFlavors, "",
           {{"metadata", {{"name", "gpu"}}},
            {"spec",
             {{"nodeLabels", {{"pool", "gpu"}}},
              {"tolerations", json::array({{{"key", "gpu"}, {"operator", "Exists"}}})}}}});
  }

  /// A job in the queue, by its label.
  void add_labelled(const std::string& name, const json& spec = json::object()) {
    add_job(name, spec);
    patch_job(name, kLabelled);
    settle();
  }
  json workload() {
    const auto all = cluster().objects(kube::kKueueWorkloads);
    return all.empty() ? json() : json::parse(all.front());
  }
  void write(const json& status) {
    const json now = workload();
    cluster().poke(kube::kKueueWorkloads, "default", now["metadata"]["name"].get<std::string>(),
                   json{{"status", status}}.dump());
    settle();
  }
  void admit(const json& topology = nullptr, int count = 2) {
    json set = {{"name", "w"}, {"count", count}, {"flavors", {{"cpu", "gpu"}}}};
    if (!topology.is_null()) set["topologyAssignment"] = topology;
    write({{"admission", {{"clusterQueue", "all"}, {"podSetAssignments", json::array({set})}}},
           {"conditions", json::array({is("QuotaReserved", true), is("Admitted", true)})}});
  }
  void evict(const std::string& reason) {
    write({{"conditions", json::array({is("QuotaReserved", true), is("Admitted", true),
                                       is("Evicted", true, reason)})}});
  }
  json told(const std::string& type) {
    for (const json& condition :
         workload().value("/status/conditions"_json_pointer, json::array())) {
      if (condition["type"] == type) return condition;
    }
    return json::object();
  }

  void give_class(const std::string& name, int value) {
    create(kube::kWorkloadPriorities, "", {{"metadata", {{"name", name}}}, {"value", value}});
  }
  /// Sets the label with the WorkloadPriorityClass; null removes it.
  void label_priority(const json& name) {
    patch_job("j", {{"metadata", {{"labels", {{"kueue.x-k8s.io/priority-class", name}}}}}});
    settle();
  }
  void add_elastic(int replicas, int fewest, json spec = json::object()) {
    const json container = {{"name", "trainer"},
                            {"image", "i"},
                            {"command", {"train"}},
                            {"resources", {{"requests", {{"cpu", 1}}}}}};
    spec["elastic"] = {
        {"role", "w"}, {"replicas", replicas}, {"minReplicas", fewest}, {"maxReplicas", 8}};
    spec["roles"] = json::array(
        {{{"name", "w"}, {"template", {{"spec", {{"containers", json::array({container})}}}}}}});
    add_labelled("j", spec);
  }
  void scale(int replicas) {
    patch_job("j", {{"spec", {{"elastic", {{"replicas", replicas}}}}}});
    settle();
  }
  json status() { return job("j")["status"]; }
  /// The quota that was given back; null: none.
  json given_back() { return workload().value("/status/reclaimablePods"_json_pointer, json()); }

 private:
  static json is(const std::string& type, bool value, const std::string& reason = "Test") {
    return {{"type", type},
            {"status", value ? "True" : "False"},
            {"reason", reason},
            {"message", "made room"},
            {"lastTransitionTime", "2026-01-01T00:00:00Z"}};
  }
};

TEST(Kueue, AJobWithoutQuotaHasAWorkloadAndNoPods) {
  KueueBench bench;
  bench.add_labelled("j");
  EXPECT_TRUE(bench.pods("j").empty());
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Queued");
  EXPECT_EQ(bench.job("j")["status"]["reason"], "WaitingForKueue");
  const json workload = bench.workload();
  EXPECT_EQ(workload["spec"]["queueName"], "team");
  EXPECT_EQ(workload["spec"]["podSets"][0]["name"], "w");
  EXPECT_EQ(workload["spec"]["podSets"][0]["count"], 2);
  EXPECT_EQ(workload["metadata"]["ownerReferences"][0]["uid"], bench.job("j")["metadata"]["uid"]);
}

TEST(Kueue, AnAdmittedJobRunsOnNodesOfItsFlavor) {
  KueueBench bench;
  bench.add_labelled("j");
  bench.admit();
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
  ASSERT_EQ(bench.pods("j").size(), 2U);
  for (const json& pod : bench.pods("j")) {
    EXPECT_EQ(pod["spec"]["nodeSelector"]["pool"], "gpu");
    EXPECT_EQ(pod["spec"]["tolerations"].back()["key"], "gpu");
    EXPECT_TRUE(pod["spec"]["nodeName"].get<std::string>().starts_with("gpu-"));
  }
  EXPECT_EQ(bench.told("PodsReady")["status"], "True");
  EXPECT_EQ(bench.told("PodsReady")["reason"], "Started");
  EXPECT_EQ(bench.job("j")["status"]["placement"]["workload"],
            bench.workload()["metadata"]["name"]);
}

/// One pod to each of two racks.
const json kTwoRacks = {
    {"levels", {"rack"}},
    {"slices",
     json::array({{{"domainCount", 2},
                   {"valuesPerLevel", json::array({{{"individual", {{"roots", {"b", "a"}}}}}})},
                   {"podCounts", {{"universal", 1}}}}})}};

TEST(Kueue, ATopologyAssignmentDecidesWhichNodes) {
  KueueBench bench;
  bench.add_labelled("j");
  bench.admit(kTwoRacks);
  ASSERT_EQ(bench.pods("j").size(), 2U) << bench.job("j")["status"].dump(1);
  EXPECT_EQ(bench.job("j")["status"]["placement"]["nodes"],
            json::parse(R"([{"name": "gpu-b", "pods": 1}, {"name": "gpu-a", "pods": 1}])"));
}

TEST(Kueue, AnAssignmentThatTheJobsOwnLevelForbidsIsNamed) {
  KueueBench bench;
  bench.add_labelled("j", {{"topology", {{"required", "Leaf"}}}});
  bench.admit(kTwoRacks);
  EXPECT_TRUE(bench.pods("j").empty());
  const json placed = bench.condition("j", "Placed");
  EXPECT_EQ(placed["reason"], "TooLarge");
  EXPECT_TRUE(placed.value("message", "").contains("kueue.x-k8s.io/podset-required-topology"))
      << placed.dump(1);
}

TEST(Kueue, KueueKnowsThePodsOfItsTopologies) {
  const json close = json::parse(R"([{"name": "w", "replicas": 2, "template": {
      "metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}},
      "spec": {"containers": [{"name": "trainer", "image": "i", "command": ["train"]}]}}}])");
  struct Case {
    const char* name;
    json spec;
    json topology;
    bool known;
    bool unconstrained;
  };
  for (const Case& c :
       {Case{"no topology", json::object(), nullptr, false, false},
        Case{"one that the job did not ask for", json::object(), kTwoRacks, true, true},
        Case{"one that the job asked for", {{"roles", close}}, kTwoRacks, true, false}}) {
    SCOPED_TRACE(c.name);
    KueueBench bench;
    bench.add_labelled("j", c.spec);
    bench.admit(c.topology);
    ASSERT_EQ(bench.pods("j").size(), 2U) << bench.job("j")["status"].dump(1);
    const json annotations = bench.pods("j").front()["metadata"].value("annotations", json());
    ASSERT_EQ(annotations.contains("kueue.x-k8s.io/workload"), c.known);
    EXPECT_EQ(annotations.contains("kueue.x-k8s.io/podset-unconstrained-topology"),
              c.unconstrained);
    if (c.known) {
      EXPECT_EQ(annotations["kueue.x-k8s.io/workload"], bench.workload()["metadata"]["name"]);
    }
  }
}

TEST(Kueue, AnEvictedJobStopsGivesItsQuotaBackAndRunsAgainWhenAdmitted) {
  struct Case {
    const char* reason;
    const char* requeued;
    const char* placed;
  };
  for (const Case& c :
       {Case{"Preempted", "True", "Preempted"}, Case{"PodsReadyTimeout", "False", "Evicted"},
        Case{"Deactivated", "False", "Evicted"}}) {
    SCOPED_TRACE(c.reason);
    KueueBench bench;
    bench.add_labelled("j");
    bench.admit();
    bench.pods_linger = true;
    bench.evict(c.reason);
    EXPECT_EQ(bench.condition("j", "Placed")["reason"], c.placed);
    EXPECT_FALSE(bench.workload()["status"]["admission"].is_null()) << "pods still use the quota";
    // Then a finalizer keeps them.
    for (const json& pod : bench.pods("j"))
      bench.cluster().poke(kube::kPods, "default", pod["metadata"]["name"].get<std::string>(),
                           R"({"status":{"phase":"Failed"}})");
    bench.settle();
    EXPECT_EQ(bench.pods("j").size(), 2U);
    EXPECT_EQ(bench.job("j")["status"]["phase"], "Queued");
    EXPECT_FALSE(bench.workload()["status"].contains("admission"));
    bench.pods_linger = false;
    bench.settle();
    EXPECT_TRUE(bench.pods("j").empty());
    EXPECT_EQ(bench.told("QuotaReserved")["status"], "False");
    EXPECT_EQ(bench.told("Admitted")["status"], "False");
    EXPECT_EQ(bench.told("Requeued")["status"], c.requeued);
    bench.admit();
    EXPECT_EQ(bench.job("j")["status"]["phase"], "Running");
    EXPECT_EQ(bench.job("j")["status"]["attempt"], 1);
    EXPECT_EQ(bench.job("j")["status"]["restarts"], 0);
  }
}

TEST(Kueue, AFinishedJobTellsKueueOnce) {
  KueueBench bench;
  bench.add_labelled("j");
  bench.admit();
  bench.finish("j");
  EXPECT_EQ(bench.told("Finished")["status"], "True");
  EXPECT_EQ(bench.told("Finished")["reason"], "Succeeded");
  const std::uint64_t writes = bench.writes();
  bench.restart_operator();
  bench.settle();
  EXPECT_EQ(bench.writes(), writes);
}

TEST(Kueue, ASuspendedOrChangedJobAsksAnew) {
  KueueBench bench;
  bench.add_labelled("j");
  bench.admit();
  const json before = bench.workload()["metadata"]["uid"];
  bench.patch_job("j", {{"spec", {{"suspend", true}}}});
  bench.settle();
  EXPECT_TRUE(bench.workload().is_null());
  EXPECT_TRUE(bench.pods("j").empty());
  bench.patch_job("j", {{"spec", {{"suspend", false}}}});
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["reason"], "WaitingForKueue");
  EXPECT_NE(bench.workload()["metadata"]["uid"], before);
}

TEST(Kueue, WhoDecidesOnAJob) {
  struct Case {
    const char* name;
    json spec;
    json patch;
    bool kueue;
    const char* reason;
  };
  const json elsewhere = {{"metadata", {{"labels", {{"kueue.x-k8s.io/queue-name", "other"}}}}}};
  for (const Case& c :
       {Case{"no queue", {}, nullptr, false, ""},
        Case{"a LocalQueue in the spec", {{"scheduling", {{"queue", "team"}}}}, nullptr, true, ""},
        Case{"Paceline's queue", {{"scheduling", {{"queue", "share"}}}}, nullptr, false, ""},
        Case{"a LocalQueue by label", {}, kLabelled, true, ""},
        Case{"a LocalQueue that is missing", {}, elsewhere, false, "LocalQueueNotFound"}}) {
    SCOPED_TRACE(c.name);
    KueueBench bench;
    json spec = c.spec.is_null() ? json::object() : c.spec;
    spec["suspend"] = true;
    bench.add_job("j", spec);
    if (!c.patch.is_null()) bench.patch_job("j", c.patch);
    bench.patch_job("j", {{"spec", {{"suspend", false}}}});
    bench.settle();
    EXPECT_EQ(!bench.workload().is_null(), c.kueue);
    const bool native = !c.kueue && *c.reason == '\0';
    EXPECT_EQ(bench.pods("j").size(), native ? 2U : 0U);
    if (*c.reason != '\0') {
      EXPECT_EQ(bench.job("j")["status"]["reason"], c.reason);
    }
  }
}

TEST(Kueue, AJobOfAnotherManagerIsLeftAlone) {
  KueueBench bench;
  bench.add_labelled("j", {{"managedBy", "kueue.x-k8s.io/multikueue"}});
  EXPECT_TRUE(bench.workload().is_null());
  EXPECT_FALSE(bench.job("j").contains("status"));
}

TEST(Kueue, AJobThatRunsKeepsRunningWhenItsQueueBecomesKueues) {
  KueueBench bench;
  bench.add_job("j", {{"scheduling", {{"queue", "late"}}}});
  bench.settle();
  ASSERT_EQ(bench.job("j")["status"]["phase"], "Running");
  bench.create(kube::kLocalQueues, "default", {{"metadata", {{"name", "late"}}}});
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running");
  EXPECT_TRUE(bench.workload().is_null());
}

TEST(Kueue, ADeletionIsOfTheWorkloadAsTheOperatorKnowsIt) {
  KueueBench bench;
  bench.add_labelled("j");
  int deletions = 0;
  bench.cluster().set_faults([&](const http::Request& request) -> std::optional<kube::Fault> {
    if (request.method != "DELETE" || ++deletions > 1) return std::nullopt;
    const json now = bench.workload();
    bench.cluster().poke(kube::kKueueWorkloads, "default",
                         now["metadata"]["name"].get<std::string>(),
                         R"({"metadata":{"labels":{"seen-by":"kueue"}}})");
    return std::nullopt;
  });
  bench.patch_job("j", {{"spec", {{"suspend", true}}}});
  bench.settle();
  EXPECT_EQ(deletions, 2) << "Kueue has written the Workload since, so the first one is refused";
  EXPECT_TRUE(bench.workload().is_null());
}

TEST(Kueue, ADeletedWorkloadStopsTheJobAndIsMadeAgain) {
  KueueBench bench;
  bench.add_labelled("j");
  bench.admit();
  const json before = bench.workload()["metadata"];
  bench.cluster().erase(kube::kKueueWorkloads, "default", before["name"].get<std::string>());
  bench.settle();
  EXPECT_TRUE(bench.pods("j").empty());
  EXPECT_EQ(bench.job("j")["status"]["reason"], "WaitingForKueue");
  EXPECT_NE(bench.workload()["metadata"]["uid"], before["uid"]);
}

TEST(Kueue, AWaitingJobsNewPriorityReachesItsWorkload) {
  KueueBench bench;
  bench.give_class("urgent", 1000);
  bench.create(kube::kPriorityClasses, "",
               {{"metadata", {{"name", "low"}}}, {"value", 5}, {"preemptionPolicy", "Never"}});
  bench.add_labelled("j");
  const json before = bench.workload();
  EXPECT_FALSE(before["spec"].contains("priorityClassRef"));
  bench.label_priority("urgent");
  json spec = bench.workload()["spec"];
  EXPECT_EQ(spec["priority"], 1000);
  EXPECT_EQ(spec["priorityClassRef"]["kind"], "WorkloadPriorityClass");
  EXPECT_EQ(spec["priorityClassRef"]["name"], "urgent");
  bench.label_priority(nullptr);
  EXPECT_EQ(bench.workload()["spec"], before["spec"]);
  bench.patch_job("j", {{"spec", {{"scheduling", {{"priorityClassName", "low"}}}}}});
  bench.settle();
  spec = bench.workload()["spec"];
  EXPECT_EQ(spec["priority"], 5);
  EXPECT_EQ(spec["priorityClassRef"]["kind"], "PriorityClass");
  EXPECT_EQ(spec["podSets"][0]["template"]["spec"]["priorityClassName"], "low");
  EXPECT_EQ(bench.workload()["metadata"]["uid"], before["metadata"]["uid"])
      << "it keeps its age, and so its place among equals";
}

TEST(Kueue, AMissingPriorityClassHoldsAWaitingJobUntilItExists) {
  KueueBench bench;
  bench.add_labelled("j");
  bench.label_priority("urgent");
  EXPECT_EQ(bench.status()["reason"], "PriorityClassNotFound") << bench.status().dump(1);
  bench.give_class("urgent", 1000);
  bench.advance(std::chrono::minutes(2));
  EXPECT_EQ(bench.workload()["spec"]["priority"], 1000);
  EXPECT_EQ(bench.status()["reason"], "WaitingForKueue");
}

TEST(Kueue, AnAdmittedJobChangesItsClassOnlyAsKueueAllows) {
  struct Case {
    const char* name;
    const char* before;
    const char* after;
    const char* then;
  };
  for (const Case& c : {Case{"another class", "urgent", "later", "later"},
                        Case{"one that is missing", "urgent", "mistyped", "urgent"},
                        Case{"none any more", "urgent", nullptr, "urgent"},
                        Case{"a first one", nullptr, "urgent", ""}}) {
    SCOPED_TRACE(c.name);
    const auto label = [](const char* name) { return name == nullptr ? json() : json(name); };
    KueueBench bench;
    bench.give_class("urgent", 1000);
    bench.give_class("later", 1);
    bench.add_labelled("j");
    bench.label_priority(label(c.before));
    bench.admit();
    ASSERT_EQ(bench.status()["phase"], "Running");
    bench.label_priority(label(c.after));
    const json spec = bench.workload()["spec"];
    EXPECT_EQ(spec.value("/priorityClassRef/name"_json_pointer, ""), c.then);
    EXPECT_EQ(bench.status()["phase"], "Running");
    EXPECT_EQ(bench.status()["attempt"], 0);
    EXPECT_EQ(bench.told("PodsReady")["status"], "True");
  }
}

TEST(Kueue, AnElasticJobStartsWithThePartThatWasAdmitted) {
  KueueBench bench;
  bench.add_elastic(4, 2);
  EXPECT_EQ(bench.workload()["spec"]["podSets"][0]["count"], 4);
  EXPECT_EQ(bench.workload()["spec"]["podSets"][0]["minCount"], 2);
  bench.admit(nullptr, 3);
  EXPECT_EQ(bench.pods("j").size(), 3U);
  EXPECT_EQ(bench.status()["phase"], "Running") << bench.status().dump(1);
  EXPECT_EQ(bench.status()["elastic"]["replicas"], 3);
  EXPECT_TRUE(bench.status()["elastic"]["message"].get<std::string>().starts_with(
      "runs with 3 of 4 replicas: Kueue has admitted no more"))
      << bench.status().dump(1);
  bench.advance(std::chrono::minutes(6));
  EXPECT_EQ(bench.pods("j").size(), 3U) << "room is not quota";
  EXPECT_TRUE(bench.given_back().is_null());
}

TEST(Kueue, AnElasticJobThatIsAdmittedWholeHasItsFullSize) {
  KueueBench bench;
  bench.add_elastic(4, 2);
  bench.admit(nullptr, 4);
  EXPECT_EQ(bench.pods("j").size(), 4U);
  EXPECT_FALSE(bench.status()["elastic"].contains("message"));
}

TEST(Kueue, AJobOfAFixedSizeAsksForAllOrNone) {
  KueueBench bench;
  bench.add_labelled("j");
  EXPECT_FALSE(bench.workload()["spec"]["podSets"][0].contains("minCount"));
}

TEST(Kueue, AShrunkJobGivesQuotaBackWhenItsOldPodsAreGone) {
  KueueBench bench;
  for (const char* node : {"gpu-a", "gpu-b"})  // the flavor tolerates it
    bench.cluster().poke(kube::kNodes, "", node,
                         R"({"spec":{"taints":[{"key":"gpu","effect":"NoSchedule"}]}})");
  bench.add_elastic(4, 1);
  bench.admit(nullptr, 3);
  bench.pods_linger = true;
  bench.scale(2);
  EXPECT_EQ(bench.status()["reason"], "Resizing");
  EXPECT_TRUE(bench.given_back().is_null()) << "three pods still use it";
  bench.pods_linger = false;
  bench.settle();
  EXPECT_EQ(bench.status()["ready"], "2/2") << bench.status().dump(1);
  EXPECT_EQ(bench.given_back(), json::array({{{"name", "w"}, {"count", 2}}}))
      << "of the four that were asked for";
  bench.scale(1);
  EXPECT_EQ(bench.status()["ready"], "1/1") << bench.status().dump(1);
  EXPECT_EQ(bench.given_back(), json::array({{{"name", "w"}, {"count", 3}}}));
  bench.scale(3);
  bench.advance(std::chrono::minutes(6));
  EXPECT_EQ(bench.pods("j").size(), 1U) << "its quota is others' now";
  EXPECT_TRUE(bench.status()["elastic"]["message"].get<std::string>().starts_with(
      "runs with 1 of 3 replicas: Kueue has admitted no more"));
  const std::uint64_t writes = bench.writes();
  bench.restart_operator();
  bench.settle();
  EXPECT_EQ(bench.writes(), writes);
}

TEST(Kueue, AJobThatLostANodeGivesQuotaBackUntilTheNextAdmission) {
  KueueBench bench;
  bench.add_elastic(2, 1, {{"scheduling", {{"podsPerNode", 1}}}});
  bench.admit();
  ASSERT_EQ(bench.status()["ready"], "2/2") << bench.status().dump(1);
  const auto set_ready = [&](const char* ready) {
    const json condition = {{"type", "Ready"}, {"status", ready}};
    bench.cluster().poke(kube::kNodes, "", "gpu-b",
                         json{{"status", {{"conditions", json::array({condition})}}}}.dump());
    bench.settle();
  };
  set_ready("Unknown");
  EXPECT_EQ(bench.status()["ready"], "1/1") << bench.status().dump(1);
  EXPECT_EQ(bench.given_back(), json::array({{{"name", "w"}, {"count", 1}}}));
  const json before = bench.workload()["metadata"]["uid"];
  set_ready("True");
  bench.evict("Preempted");
  EXPECT_EQ(bench.workload()["metadata"]["uid"], before);
  EXPECT_TRUE(bench.given_back().is_null()) << "it asks for both again";
  bench.admit();
  EXPECT_EQ(bench.status()["ready"], "2/2") << bench.status().dump(1);
}

TEST(Kueue, AWorkloadThatWouldBeAdmittedForTooFewIsMadeAnew) {
  KueueBench bench;
  bench.add_elastic(3, 1);
  bench.admit(nullptr, 3);
  bench.scale(2);
  bench.scale(3);
  ASSERT_EQ(bench.given_back(), json::array({{{"name", "w"}, {"count", 1}}}));
  const json before = bench.workload()["metadata"]["uid"];
  bench.write({{"admission", nullptr}, {"conditions", json::array()}});
  EXPECT_TRUE(bench.pods("j").empty());
  EXPECT_NE(bench.workload()["metadata"]["uid"], before);
  EXPECT_TRUE(bench.given_back().is_null());
}

TEST(Kueue, AJobWithATopologyAssignmentKeepsItsSize) {
  KueueBench bench;
  bench.add_elastic(3, 1);
  bench.admit(kTwoRacks);
  EXPECT_EQ(bench.status()["placement"]["nodes"],
            json::parse(R"([{"name": "gpu-b", "pods": 1}, {"name": "gpu-a", "pods": 1}])"));
  bench.scale(1);
  EXPECT_EQ(bench.pods("j").size(), 2U);
  EXPECT_EQ(bench.status()["phase"], "Running");
  EXPECT_TRUE(bench.given_back().is_null());
}

TEST(Kueue, ARefusedPodAsksForNoQuota) {
  KueueBench bench;
  bench.cluster().set_faults([](const http::Request& request) -> std::optional<kube::Fault> {
    if (request.target.find("dryRun=All") == std::string::npos) return std::nullopt;
    return kube::Fault{.status = 403};
  });
  bench.add_labelled("j");
  EXPECT_TRUE(bench.workload().is_null());
  EXPECT_EQ(bench.job("j")["status"]["reason"], "PodRefused");
}

}  // namespace
}  // namespace paceline::apply
