// SPDX-License-Identifier: Apache-2.0
// Jobs whose pods another scheduler binds. The bench plays that scheduler: it binds a whole
// PodGroup, on nodes of its own choice.
#include <gtest/gtest.h>

#include <cctype>

#include "common/base/timestamp.hpp"
#include "operator/render/pod_group.hpp"
#include "tests/unit/operator/controller_bench.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;

const json kVolcano = {{"scheduling", {{"backend", "Volcano"}, {"queue", "team"}}}};
constexpr kube::Resource kGroups{"scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup"};

struct PodGroups : ::testing::Test {
  PodGroups() {
    bench.add_node("a", 8);
    bench.add_node("b", 8);
  }
  std::vector<json> groups(const kube::Resource& of = kGroups) {
    std::vector<json> all;
    for (const std::string& text : bench.cluster().objects(of)) all.push_back(json::parse(text));
    return all;
  }
  json status() { return bench.job("j")["status"]; }

  ControllerBench bench;
};

TEST_F(PodGroups, AGangIsLeftToTheOtherSchedulerAndItsNodesAreRecorded) {
  bench.add_job("j", kVolcano);
  bench.settle();
  ASSERT_EQ(groups().size(), 1U);
  const json group = groups().front();
  EXPECT_EQ(group["spec"]["minMember"], 2);
  EXPECT_EQ(group["spec"]["queue"], "team");
  EXPECT_EQ(group["spec"]["minResources"]["cpu"], "2");
  EXPECT_EQ(status()["podGroup"], group["metadata"]["name"]);
  for (const json& pod : bench.pods("j")) {
    EXPECT_EQ(pod["spec"]["schedulerName"], "volcano");
    EXPECT_FALSE(pod["spec"].contains("affinity")) << "Paceline pins nothing";
  }
  EXPECT_EQ(status()["phase"], "Running");
  EXPECT_EQ(status()["placement"]["nodes"], json::parse(R"([{"name": "a", "pods": 2}])"));
  EXPECT_TRUE(status().contains("startTime"));
  bench.finish("j");
  EXPECT_EQ(status()["phase"], "Succeeded");
  EXPECT_TRUE(groups().empty());
  EXPECT_FALSE(status().contains("podGroup"));
}

TEST_F(PodGroups, APodOnANodeThatTheOperatorHasNotSeenYetIsNotLost) {
  // An autoscaler's node, and a watch of nodes that is behind that of pods.
  bench.cluster().erase(kube::kNodes, "", "a");
  bench.cluster().erase(kube::kNodes, "", "b");
  bench.settle();
  bench.nodes_lag = true;
  bench.add_node("new", 8);
  bench.add_job("j", kVolcano);
  bench.settle();
  ASSERT_EQ(bench.pods("j").size(), 2U);
  EXPECT_EQ(bench.pods("j")[0]["spec"]["nodeName"], "new");
  EXPECT_EQ(status()["phase"], "Running") << status().dump(1);
  EXPECT_EQ(status()["disruptions"], 0);

  bench.cluster().set_faults([](const http::Request& request) -> std::optional<kube::Fault> {
    if (!request.target.contains("/nodes/")) return std::nullopt;
    return kube::Fault{.status = 500, .message = "not now"};
  });
  bench.advance(std::chrono::seconds(30));
  EXPECT_EQ(status()["phase"], "Running") << "nobody says that the node is gone";
  bench.cluster().set_faults(nullptr);

  bench.nodes_lag = false;
  bench.settle();
  bench.cluster().erase(kube::kNodes, "", "new");
  bench.settle();
  EXPECT_NE(status()["phase"], "Running") << "it is gone";
}

struct Written {
  const char* backend;
  kube::Resource groups;
  json spec;   // of the PodGroup
  json patch;  // what makes a pod its member; $ is its name
};

TEST_F(PodGroups, EachSchedulerFindsTheGangAsItReadsOne) {
  bench.create(kube::kPriorityClasses, "",
               {{"metadata", {{"name", "low"}}}, {"value", 1}, {"preemptionPolicy", "Never"}});
  const Written all[] = {
      {"Coscheduling",
       {"scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup"},
       {{"minMember", 2}},
       json::parse(R"({"spec": {"schedulerName": "scheduler-plugins-scheduler"},
                       "metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "$"}}})")},
      {"PodGroup",
       {"scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup"},
       json::parse(R"({"schedulingPolicy": {"gang": {"minCount": 2}},
                       "disruptionMode": {"all": {}}, "priorityClassName": "low"})"),
       json::parse(R"({"spec": {"schedulerName": "default-scheduler",
                                "schedulingGroup": {"podGroupName": "$"}}})")},
      {"KAI",
       {"scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup"},
       {{"minMember", 2}, {"queue", "team"}, {"priorityClassName", "low"}},
       json::parse(R"({"spec": {"schedulerName": "kai-scheduler"}, "metadata": {"annotations": {
                       "pod-group-name": "$", "kai.scheduler/skip-podgrouper": "true"}}})")},
  };
  for (const Written& written : all) {
    SCOPED_TRACE(written.backend);
    const std::string name(1, static_cast<char>(std::tolower(written.backend[0])));
    bench.add_job(
        name, {{"scheduling",
                {{"backend", written.backend}, {"queue", "team"}, {"priorityClassName", "low"}}}});
    bench.settle();
    const auto made = groups(written.groups);
    ASSERT_EQ(made.size(), 1U);
    EXPECT_EQ(made.front()["spec"], written.spec);
    EXPECT_EQ(made.front()["apiVersion"], written.groups.api_version());
    const std::string group = made.front()["metadata"]["name"];
    std::string patch = written.patch.dump();
    patch.replace(patch.find('$'), 1, group);
    ASSERT_EQ(bench.pods(name).size(), 2U);
    for (const json& pod : bench.pods(name)) {
      json patched = pod;
      patched.merge_patch(json::parse(patch));
      EXPECT_EQ(patched, pod);
      EXPECT_FALSE(pod["spec"].contains("affinity")) << "Paceline pins nothing";
    }
    EXPECT_EQ(bench.job(name)["status"]["phase"], "Running");
    EXPECT_EQ(bench.job(name)["status"]["podGroup"], group);
    bench.finish(name);
    EXPECT_TRUE(groups(written.groups).empty());
  }
}

TEST_F(PodGroups, AClusterWithoutThemSaysHowToGetThem) {
  bench.cluster().set_faults([](const http::Request& request) -> std::optional<kube::Fault> {
    if (request.target.find("/podgroups") == std::string::npos) return std::nullopt;
    return kube::Fault{.status = 404};
  });
  bench.add_job("j", {{"scheduling", {{"backend", "PodGroup"}}}});
  bench.settle();
  const json placed = bench.condition("j", "Placed");
  EXPECT_EQ(placed["reason"], "SchedulerNotInstalled");
  EXPECT_EQ(placed["message"],
            "the API server does not serve podgroups.scheduling.k8s.io (v1beta1): run Kubernetes "
            "1.37 with the feature gate GenericWorkload, and its API server with "
            "--runtime-config=scheduling.k8s.io/v1beta1=true, or change spec.scheduling.backend");
  EXPECT_TRUE(bench.pods("j").empty());
}

TEST_F(PodGroups, AGroupOfAnotherOwnerIsNeitherTakenNorDeleted) {
  bench.groups_wait = true;
  const std::string name = "trainingjob-j-00000000-0";
  const json other = {{"metadata", {{"name", name}}}, {"spec", {{"minMember", 1}}}};
  bench.create(kGroups, "default", other);
  bench.add_job("j", kVolcano);
  bench.settle();
  const json placed = bench.condition("j", "Placed");
  EXPECT_EQ(placed["reason"], "NameTaken") << placed;
  EXPECT_EQ(placed["message"], "PodGroup " + name +
                                   " exists and does not belong to this job; delete it, or rename "
                                   "the job");
  EXPECT_TRUE(bench.pods("j").empty());
  bench.cluster().erase(kGroups, "default", name);
  bench.advance(std::chrono::minutes(1));
  bench.settle();
  ASSERT_EQ(groups().size(), 1U);
  EXPECT_EQ(groups()[0]["metadata"]["ownerReferences"][0]["name"], "j");

  bench.cluster().erase(kGroups, "default", name);
  bench.create(kGroups, "default", other);
  bench.patch_job("j", {{"spec", {{"suspend", true}}}});
  bench.settle();
  EXPECT_EQ(status()["phase"], "Suspended");
  EXPECT_FALSE(status().contains("podGroup"));
  EXPECT_EQ(groups().size(), 1U) << "it is somebody's own";
}

TEST_F(PodGroups, AWaitingJobNamesKubeSchedulerAndItsGroup) {
  bench.groups_wait = true;
  bench.add_job("j", {{"scheduling", {{"backend", "PodGroup"}}}});
  bench.settle();
  EXPECT_EQ(bench.condition("j", "Placed")["message"],
            "waits for kube-scheduler; what it says of the gang: kubectl describe "
            "podgroups.scheduling.k8s.io " +
                status()["podGroup"].get<std::string>());
}

TEST_F(PodGroups, NothingOfPacelineEndsTheWaitInTheOtherQueue) {
  bench.groups_wait = true;
  bench.add_job("j", kVolcano);
  bench.settle();
  const auto before = bench.pods("j");
  ASSERT_EQ(before.size(), 2U);
  bench.advance(std::chrono::hours(5));
  EXPECT_EQ(bench.pods("j"), before);
  EXPECT_EQ(status()["phase"], "Queued");
  EXPECT_EQ(bench.condition("j", "Placed")["reason"], "WaitingForScheduler");
  EXPECT_FALSE(status().contains("startTime")) << "activeDeadline does not count the wait";
  bench.groups_wait = false;
  bench.settle();
  EXPECT_EQ(status()["phase"], "Running");
  EXPECT_EQ(bench.condition("j", "Placed")["reason"], "Bound");
}

TEST_F(PodGroups, AGangOfWhichOnlyAPartIsBoundIsRemovedAfterGangTimeout) {
  bench.groups_wait = bench.pods_wait = true;
  bench.add_job("j", kVolcano);
  bench.settle();
  bench.advance(std::chrono::hours(1));
  bench.cluster().poke(kube::kPods, "default", "j-w-0-0", R"({"spec": {"nodeName": "a"}})");
  bench.settle();
  EXPECT_EQ(bench.pods("j").size(), 2U) << "the part was bound only now";
  EXPECT_EQ(status()["phase"], "Starting");
  bench.advance(std::chrono::minutes(3));
  bench.advance(std::chrono::minutes(1));
  const auto pods = bench.pods("j");
  ASSERT_EQ(pods.size(), 2U);
  EXPECT_EQ(pods.front()["metadata"]["name"], "j-w-0-1") << "it asks again with new pods";
  EXPECT_EQ(bench.condition("j", "Placed")["reason"], "WaitingForScheduler");
}

TEST_F(PodGroups, ALostPodIsBoundAgainByTheSameGroup) {
  bench.add_job("j", kVolcano);
  bench.settle();
  bench.cluster().erase(kube::kPods, "default", "j-w-1-0");
  bench.advance(std::chrono::seconds(10));
  ASSERT_EQ(bench.pods("j").size(), 2U);
  EXPECT_EQ(bench.pods("j").back()["metadata"]["name"], "j-w-1-1");
  EXPECT_EQ(status()["disruptions"], 1);
  EXPECT_EQ(groups().size(), 1U);
}

TEST_F(PodGroups, ASuspendedJobGivesItsGroupBackAndTheNextOperatorFinishesThat) {
  bench.add_job("j", kVolcano);
  bench.settle();
  const std::string first = groups().front()["metadata"]["uid"];
  bench.pods_linger = true;
  bench.patch_job("j", {{"spec", {{"suspend", true}}}});
  bench.settle();
  EXPECT_EQ(groups().size(), 1U) << "its pods still run";
  bench.restart_operator();
  bench.pods_linger = false;
  bench.settle();
  EXPECT_TRUE(groups().empty());
  bench.patch_job("j", {{"spec", {{"suspend", false}}}});
  bench.settle();
  EXPECT_EQ(status()["phase"], "Running");
  ASSERT_EQ(groups().size(), 1U);
  EXPECT_NE(groups().front()["metadata"]["uid"], first);
}

TEST_F(PodGroups, AnotherSchedulersGroupsThatTheRoleDoesNotAllowHoldNoJobBack) {
  bench.add_job("j", kVolcano);
  bench.settle();
  bench.cluster().set_faults([](const http::Request& request) -> std::optional<kube::Fault> {
    if (!request.target.contains("/apis/scheduling.run.ai/")) return std::nullopt;
    return kube::Fault{.status = 403};
  });
  bench.patch_job("j", {{"spec", {{"suspend", true}}}});
  bench.settle();
  EXPECT_TRUE(groups().empty());
  EXPECT_FALSE(status().contains("podGroup")) << status().dump(1);
  bench.patch_job("j", {{"spec", {{"suspend", false}}}});
  bench.settle();
  EXPECT_EQ(status()["phase"], "Running") << status().dump(1);
}

struct KeptPodGroups : PodGroups {
  /// A job of Volcano whose PodGroup the operator may not delete.
  KeptPodGroups() {
    json spec = kVolcano;
    spec["ttlAfterFinished"] = "1h";
    bench.add_job("j", spec);
    bench.settle();
    bench.cluster().set_faults([](const http::Request& request) -> std::optional<kube::Fault> {
      if (request.method != "DELETE" || !request.target.contains("/podgroups/"))
        return std::nullopt;
      return kube::Fault{.status = 403, .message = "the role has no such right"};
    });
  }
  std::string why() { return bench.condition("j", "Placed").value("message", ""); }
  std::string reason() { return bench.condition("j", "Placed").value("reason", ""); }
};

TEST_F(KeptPodGroups, OfAFinishedJobAreNamedAndHoldNothingElseBack) {
  const std::string name = groups().front()["metadata"]["name"];
  bench.finish("j");
  EXPECT_EQ(status()["phase"], "Succeeded");
  EXPECT_EQ(reason(), "PodGroupNotDeleted");
  EXPECT_TRUE(
      why().starts_with("the API server does not let the operator delete PodGroup " + name +
                        " of the gang that has ended (verb delete, resource podgroups, API group "
                        "scheduling.volcano.sh): "))
      << why();
  EXPECT_TRUE(why().contains(": the role has no such right; allow it")) << why();
  EXPECT_TRUE(why().ends_with("kubectl delete podgroups.scheduling.volcano.sh " + name)) << why();
  const std::uint64_t writes = bench.writes();
  bench.advance(std::chrono::minutes(10));
  EXPECT_LE(bench.writes(), writes + 30) << "it is not tried in a loop";
  bench.advance(std::chrono::hours(1));
  EXPECT_TRUE(bench.job("j").is_null()) << "its time is over";
}

TEST_F(KeptPodGroups, OfASuspendedJobGoWhenTheRightIsGranted) {
  bench.patch_job("j", {{"spec", {{"suspend", true}}}});
  bench.settle();
  EXPECT_EQ(status()["phase"], "Suspended");
  EXPECT_EQ(reason(), "PodGroupNotDeleted");
  bench.patch_job("j", {{"spec", {{"suspend", false}}}});
  bench.settle();
  EXPECT_EQ(status()["phase"], "Queued");
  EXPECT_EQ(status()["reason"], "PodGroupNotDeleted");
  EXPECT_EQ(status()["message"], why());
  bench.cluster().set_faults(nullptr);
  bench.advance(std::chrono::minutes(2));
  EXPECT_EQ(status()["phase"], "Running") << status().dump(1);
  EXPECT_EQ(groups().size(), 1U);
}

TEST_F(KeptPodGroups, AreNotTakenForAbsentWhereTheirSchedulersMayNotBeRead) {
  bench.cluster().set_faults([](const http::Request& request) -> std::optional<kube::Fault> {
    if (request.method != "GET" || !request.target.contains("/podgroups/")) return std::nullopt;
    return kube::Fault{.status = 403, .message = "the role has no such right"};
  });
  bench.patch_job("j", {{"spec", {{"suspend", true}}}});
  bench.settle();
  EXPECT_EQ(reason(), "PodGroupNotDeleted");
  EXPECT_TRUE(why().contains("(verb get, resource podgroups, API group scheduling.volcano.sh)"))
      << why();
  bench.cluster().set_faults(nullptr);
  bench.advance(std::chrono::minutes(2));
  EXPECT_TRUE(groups().empty());
  EXPECT_FALSE(status().contains("podGroup")) << status().dump(1);
}

TEST_F(KeptPodGroups, LeaveNoWordBehindWhenTheyAreGone) {
  bench.finish("j");
  ASSERT_EQ(reason(), "PodGroupNotDeleted");
  const std::string name = groups().front()["metadata"]["name"];
  bench.cluster().erase(kGroups, "default", name);
  bench.advance(std::chrono::minutes(2));
  EXPECT_EQ(reason(), "Finished");
  EXPECT_FALSE(status().contains("podGroup"));
}

TEST_F(PodGroups, AGroupThatSomebodyDeletedIsMadeAgainWhileTheJobWaits) {
  bench.groups_wait = true;
  bench.add_job("j", kVolcano);
  bench.settle();
  const std::string name = groups().front()["metadata"]["name"];
  bench.cluster().erase(kGroups, "default", name);
  bench.advance(std::chrono::minutes(2));
  ASSERT_EQ(groups().size(), 1U);
  EXPECT_EQ(groups().front()["metadata"]["name"], name);
}

TEST_F(PodGroups, AnEditThatNoOperatorSawMovesTheJobToItsNewScheduler) {
  bench.groups_wait = true;
  bench.add_job("j", kVolcano);
  bench.settle();
  bench.jobs_lag = true;
  bench.patch_job("j", {{"spec", {{"suspend", true}}}});
  bench.patch_job("j", {{"spec", {{"scheduling", {{"backend", "Native"}, {"queue", nullptr}}}}}});
  bench.patch_job("j", {{"spec", {{"suspend", false}}}});
  bench.jobs_lag = false;
  bench.settle();
  EXPECT_EQ(status()["phase"], "Running");
  EXPECT_TRUE(groups().empty());
  for (const json& pod : bench.pods("j")) EXPECT_FALSE(pod["spec"].contains("schedulerName"));
}

TEST_F(PodGroups, AQueueThatNoOperatorSawChangeIsTheNewGroups) {
  bench.groups_wait = true;
  bench.add_job("j", kVolcano);
  bench.settle();
  bench.patch_job("j", {{"spec", {{"scheduling", {{"queue", "other"}}}}}});
  bench.settle();
  ASSERT_EQ(groups().size(), 1U);
  EXPECT_EQ(groups().front()["spec"]["queue"], "other");
}

TEST_F(PodGroups, AWaitForAWholeNewGangDoesNotCountForTheDeadline) {
  json spec = kVolcano;
  spec["activeDeadline"] = "1h";
  bench.add_job("j", spec);
  bench.settle();
  ASSERT_EQ(status()["phase"], "Running");
  bench.groups_wait = true;
  for (const char* pod : {"j-w-0-0", "j-w-1-0"}) bench.cluster().erase(kube::kPods, "default", pod);
  bench.advance(std::chrono::seconds(10));
  ASSERT_EQ(status()["phase"], "Queued");
  bench.advance(std::chrono::hours(3));
  EXPECT_EQ(status()["phase"], "Queued");
  bench.groups_wait = false;
  bench.settle();
  EXPECT_EQ(status()["phase"], "Running");
}

TEST_F(PodGroups, APodIsMadeAgainWhenItsJobNoLongerAvoidsANode) {
  bench.add_job("j", kVolcano);
  bench.settle();
  const std::string now = format_time(bench.now());
  const std::string later = format_time(bench.now() + std::chrono::minutes(10));
  bench.cluster().poke(kube::kTrainingJobs, "default", "j",
                       json{{"status",
                             {{"excludedNodes", json::array({{{"name", "b"},
                                                              {"message", "fails"},
                                                              {"since", now},
                                                              {"until", later},
                                                              {"count", 1}}})}}}}
                           .dump());
  bench.groups_wait = true;
  for (const char* pod : {"j-w-0-0", "j-w-1-0"}) bench.cluster().erase(kube::kPods, "default", pod);
  bench.advance(std::chrono::seconds(10));
  ASSERT_EQ(bench.pods("j").size(), 2U);
  EXPECT_TRUE(bench.pods("j").front()["spec"].contains("affinity")) << "it keeps off the node";
  bench.advance(std::chrono::minutes(11));
  bench.advance(std::chrono::minutes(1));
  ASSERT_EQ(bench.pods("j").size(), 2U);
  EXPECT_FALSE(bench.pods("j").front()["spec"].contains("affinity"));
}

TEST_F(PodGroups, AGangThatPacelinePlacedStaysItsOwnThroughAnUpgrade) {
  // An older operator placed jobs whose templates name volcano.
  json job = json::parse(R"({"apiVersion": "paceline.dev/v1alpha1", "kind": "TrainingJob",
      "metadata": {"name": "k"}, "spec": {"framework": {"type": "Custom"},
      "scheduling": {"podsPerNode": 1}, "roles": [{"name": "w", "replicas": 1, "template": {"spec":
      {"schedulerName": "volcano",
       "containers": [{"name": "trainer", "image": "i", "command": ["train"]}]}}}]}})");
  EXPECT_FALSE(observe::project_job(job.dump())->errors.empty());
  job["status"]["placement"]["nodes"] = json::array({{{"name", "a"}, {"pods", 1}}});
  const auto placed = observe::project_job(job.dump());
  EXPECT_TRUE(placed->errors.empty());
  json native = job;
  native["spec"]["scheduling"]["backend"] = "Native";
  EXPECT_EQ(placed->fingerprint, observe::project_job(native.dump())->fingerprint);
}

TEST_F(PodGroups, ThePodTemplatesNameVolcanoToo) {
  json roles = json::parse(R"([{"name": "w", "replicas": 1, "template": {"spec": {
      "schedulerName": "volcano", "containers": [{"name": "trainer", "image": "i",
      "command": ["train"], "resources": {"requests": {"cpu": 1}}}]}}}])");
  bench.add_job("j", {{"roles", roles}});
  bench.settle();
  EXPECT_EQ(groups().size(), 1U);
  roles[0]["template"]["spec"]["schedulerName"] = "mine";
  bench.add_job("k", {{"roles", roles}});
  bench.settle();
  EXPECT_EQ(groups().size(), 1U) << "any other name says nothing of a PodGroup";
}

TEST_F(PodGroups, AJobThatPacelinePlacesStopsNoneOfThem) {
  for (const auto& [name, value] : {std::pair("high", 100), std::pair("low", 1)})
    bench.create(kube::kPriorityClasses, "",
                 {{"metadata", {{"name", name}}}, {"value", value}, {"preemptionPolicy", "Never"}});
  json low = kVolcano;
  low["scheduling"]["priorityClassName"] = "low";
  bench.add_job("j", low);
  bench.settle();
  ASSERT_EQ(status()["phase"], "Running");
  bench.cluster().erase(kube::kNodes, "", "b");
  json high = {{"scheduling", {{"priorityClassName", "high"}}}};
  high["roles"] = json::array({{{"name", "w"},
                                {"replicas", 4},
                                {"template", bench.job("j")["spec"]["roles"][0]["template"]}}});
  high["roles"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2";
  bench.add_job("k", high);
  bench.settle();
  EXPECT_EQ(bench.condition("k", "Placed")["reason"], "WaitingForRoom");
  EXPECT_EQ(status()["phase"], "Running");
}

json parsed_errors(const json& spec) {
  json job = json::parse(R"({"apiVersion": "paceline.dev/v1alpha1", "kind": "TrainingJob",
      "metadata": {"name": "j"}, "spec": {"framework": {"type": "Custom"}}})");
  job["spec"]["roles"] = json::parse(R"([{"name": "w", "replicas": 2, "template": {"spec":
      {"containers": [{"name": "trainer", "image": "i", "command": ["train"]}]}}}])");
  job["spec"].merge_patch(spec);
  const auto view = observe::project_job(job.dump());
  json paths = json::array();
  if (!view) return paths;
  for (const api::FieldError& error : view->errors) paths.push_back(error.path);
  return paths;
}

TEST(Backend, RefusesWhatOnlyPacelinesPlacementObeys) {
  json spec = kVolcano;
  EXPECT_EQ(parsed_errors(spec), json::array());
  spec["topology"] = {{"preferred", "Leaf"}};
  EXPECT_EQ(parsed_errors(spec), json::array()) << "a wish that is not read refuses no job";
  spec["topology"] = {{"required", "Leaf"}};
  spec["scheduling"]["podsPerNode"] = 1;
  EXPECT_EQ(parsed_errors(spec), json({"spec.topology.required", "spec.scheduling.podsPerNode"}));
  spec["scheduling"]["backend"] = "Native";
  EXPECT_EQ(parsed_errors(spec), json::array());
}

TEST(Backend, RefusesWhatItsSchedulerCannotBind) {
  EXPECT_EQ(parsed_errors({{"scheduling", {{"backend", "KAI"}}}}),
            json::array({"spec.scheduling.queue"}));
  EXPECT_EQ(parsed_errors({{"scheduling", {{"backend", "KAI"}, {"queue", "team"}}}}),
            json::array());
  json spec = {{"scheduling", {{"backend", "PodGroup"}}}};
  EXPECT_EQ(parsed_errors(spec), json::array());
  spec["roles"] = json::parse(R"([{"name": "w", "replicas": 2, "template": {"spec":
      {"schedulerName": "volcano", "schedulingGroup": {"podGroupName": "mine"},
       "containers": [{"name": "trainer", "image": "i", "command": ["train"]}]}}}])");
  EXPECT_EQ(parsed_errors(spec), json({"spec.roles[0].template.spec.schedulerName",
                                       "spec.roles[0].template.spec.schedulingGroup"}));
  EXPECT_EQ(parsed_errors({{"scheduling", {{"backend", "Pod"}}}}),
            json::array({"spec.scheduling.backend"}));
}

TEST(JoinPodGroup, KeepsItsPodsOffNodes) {
  json pod = {{"metadata", {{"labels", json::object()}}}, {"spec", {{"schedulerName", "mine"}}}};
  const auto* scheduler = render::gang_scheduler(api::Backend::kCoscheduling);
  ASSERT_NE(scheduler, nullptr);
  render::join_pod_group(pod, "group", *scheduler, {"bad"});
  EXPECT_EQ(pod["spec"]["schedulerName"], "mine");
  EXPECT_EQ(pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"], "group");
  EXPECT_EQ(pod.at("/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
                   "/nodeSelectorTerms/0/matchFields/0"_json_pointer),
            json({{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", {"bad"}}}));
}

}  // namespace
}  // namespace paceline::apply
