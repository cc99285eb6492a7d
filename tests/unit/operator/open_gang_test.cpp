// SPDX-License-Identifier: Apache-2.0
// Gangs whose pods are created without a gate, because nothing may hold back a part of them.
#include <gtest/gtest.h>

#include <algorithm>

#include "operator/plan/policies/policies.hpp"
#include "tests/unit/operator/controller_bench.hpp"
#include "tests/unit/operator/job_bench.hpp"

namespace paceline::plan {
namespace {

struct OpenGang : ::testing::Test {
  OpenGang() { bench.gated = false; }
  void place() {
    bench.memory.admission = {"n0", "n1"};
    bench.step();
    bench.memory.admission.reset();
  }
  JobBench bench;
};

TEST_F(OpenGang, IsCreatedWithOneWriteForEachPodAndRuns) {
  place();
  EXPECT_EQ(bench.pods.size(), 2U);
  EXPECT_FALSE(bench.pod(0).gated);
  EXPECT_EQ(bench.status().find(status::kPlaced)->reason, "Starting");
  EXPECT_EQ(bench.status().phase, "Starting");
  EXPECT_EQ(bench.status().pod_counts, (api::PodCounts{0, 2}));
  EXPECT_EQ(bench.status().queue, "default") << "the job names none";
  bench.run();
  EXPECT_EQ(bench.status().phase, "Running");
  EXPECT_EQ(bench.status().find(status::kPlaced)->reason, "Bound");
  EXPECT_EQ(bench.created, 2);
}

TEST_F(OpenGang, IsCompletedByTheNextOperator) {
  place();
  bench.pods.erase("j-w-1-0");  // this create was never sent
  bench.restart_operator();
  bench.settle();
  EXPECT_EQ(bench.pod_names(), (std::vector<std::string>{"j-w-0-0", "j-w-1-0"}));
  EXPECT_FALSE(bench.pod(1).gated);
}

TEST_F(OpenGang, ReplacesAPodThatIsDeletedBeforeItIsBoundAndThatAFinalizerKeeps) {
  place();
  bench.pod(1).unbound = true;
  bench.pod(1).deleting = true;
  bench.pod(1).lingers = true;
  bench.settle();
  EXPECT_EQ(bench.pod_names(), (std::vector<std::string>{"j-w-0-0", "j-w-1-0", "j-w-1-1"}));
  EXPECT_EQ(bench.status().restarts, 0);
}

TEST_F(OpenGang, IsTakenBackIfOnePodIsRefused) {
  place();
  bench.pods.erase("j-w-1-0");
  bench.memory.refusal = Waiting{"CreateRefused", "exceeded quota"};
  bench.settle();
  EXPECT_TRUE(bench.pods.empty());
  EXPECT_EQ(bench.status().phase, "Queued");
  EXPECT_EQ(bench.status().reason, "CreateRefused");
}

TEST_F(OpenGang, IsTakenBackIfItIsNotBoundInTime) {
  place();
  bench.pod(1).node.clear();
  bench.settle();
  bench.advance(std::chrono::hours(1));
  bench.settle();
  EXPECT_EQ(bench.status().reason, "BindTimeout");
  EXPECT_TRUE(bench.pods.empty());
}

TEST_F(OpenGang, ThatTheSchedulerRefusesTwiceForOneReasonWaitsAndSaysSo) {
  const auto refuse = [this](const std::string& why) {
    place();
    bench.pod(1).unbound = true;
    bench.pod(1).reason = why.empty() ? "" : "Unschedulable";
    bench.pod(1).detail = why;
    bench.settle();
    bench.advance(std::chrono::minutes(3));
    bench.settle();
    EXPECT_TRUE(bench.pods.empty());
    return bench.status().reason;
  };
  EXPECT_EQ(refuse("0/5 nodes are available: 1 had a conflict."), "BindTimeout");
  EXPECT_EQ(refuse("0/5 nodes are available: 1 lacked a volume."), "BindTimeout");
  EXPECT_EQ(refuse(""), "BindTimeout") << "without words of the scheduler there is no reason";
  EXPECT_EQ(refuse(""), "BindTimeout");
  EXPECT_EQ(refuse("0/5 nodes are available: 1 lacked a volume."), "BindTimeout");
  EXPECT_EQ(refuse("0/6 nodes are available: 1 lacked a volume."), "SchedulerRefuses");
  EXPECT_NE(bench.status().message.find("1 lacked a volume"), std::string::npos);
  place();
  EXPECT_TRUE(bench.pods.empty()) << "waits, though a placement was found";
  EXPECT_EQ(bench.status().reason, "SchedulerRefuses");
  bench.advance(kBindPause);
  place();
  EXPECT_FALSE(bench.pods.empty());
}

TEST_F(OpenGang, IsTriedAtOnceAfterARefusalIfTheSpecHasChanged) {
  place();
  bench.memory.bind_refusal = {"", bench.job.job.metadata.generation, bench.now + kBindPause};
  bench.pods.clear();
  bench.change_spec({{"suspend", true}});
  bench.settle();
  bench.change_spec({{"suspend", false}});
  place();
  EXPECT_FALSE(bench.pods.empty());
}

TEST_F(OpenGang, ReplacesWhatEndsBeforeAllAreBound) {
  place();
  bench.end(1, 143);  // evicted, while another pod was not bound yet
  bench.pods.erase("j-w-0-0");
  bench.settle();
  EXPECT_EQ(bench.pod(1).incarnation, 1);
  EXPECT_EQ(bench.pod(0).incarnation, 1) << "a gang of which a pod ended may have been whole";
}

TEST_F(OpenGang, SpendsNoRestartIfTheOperatorWasAwayHalfWay) {
  bench.change_spec({{"failurePolicy", {{"maxRestarts", 0}}}});
  place();
  bench.pods.erase("j-w-1-0");  // this create was never sent
  bench.end(0, 66);             // its launcher waited in vain for the other one
  bench.restart_operator();
  bench.settle();
  EXPECT_NE(bench.status().phase, "Failed") << bench.status().message;
  EXPECT_EQ(bench.status().restarts, 0);
  EXPECT_EQ(bench.pod(0).incarnation, 1);
  EXPECT_EQ(bench.pod(1).incarnation, 1);
}

TEST_F(OpenGang, CreatesAPodAgainThatWasDeletedEarly) {
  place();
  bench.pod(1).node.clear();
  bench.pods.erase("j-w-0-0");
  bench.settle();
  EXPECT_EQ(bench.pod_names(), (std::vector<std::string>{"j-w-0-0", "j-w-1-0"}));
  EXPECT_EQ(bench.status().attempt, 0);
}

TEST_F(OpenGang, ReplacesAPodWhoseNodeIsGone) {
  place();
  bench.nodes["n1"] = nullptr;
  bench.pods.erase("j-w-1-0");  // garbage collection was faster than the operator
  const Plan plan = bench.step();
  EXPECT_TRUE(plan.creates.empty()) << "no pod is pinned to a node that does not exist";
  EXPECT_EQ(plan.check_gone, std::vector<std::string>{"j-w-1-0"});
  EXPECT_EQ(bench.step().find_nodes, std::vector<int>{1});
}

TEST_F(OpenGang, LeavesALostNodeWhileItStarts) {
  place();
  bench.pod(0).node.clear();
  bench.nodes["n1"] = nullptr;
  bench.step();
  EXPECT_TRUE(bench.status().is_true(status::kRestarting));
  EXPECT_EQ(bench.pod_names(), std::vector<std::string>{"j-w-0-0"});
  bench.restart_operator();  // it is on record that the pod was lost, not missing
  EXPECT_TRUE(bench.step().creates.empty());
}

TEST_F(OpenGang, IsPreemptedAsAWhole) {
  place();
  bench.memory.preempted_by = "other";
  bench.settle();
  EXPECT_TRUE(bench.pods.empty());
  EXPECT_EQ(bench.status().reason, "Preempted");
}

TEST_F(OpenGang, IsGatedAfterARefusal) {
  bench.memory.retries = 1;
  place();
  EXPECT_TRUE(bench.pod(0).gated);
  EXPECT_EQ(bench.status().find(status::kPlaced)->reason, "Creating");
}

TEST_F(OpenGang, KeepsItsStageIfAQuotaComesWhileItStarts) {
  place();
  bench.pods.erase("j-w-1-0");
  bench.gated = true;
  bench.settle();
  EXPECT_FALSE(bench.pod(1).gated) << "gates that nobody opens would hold it for ever";
}

}  // namespace
}  // namespace paceline::plan

namespace paceline::apply {
namespace {

using nlohmann::json;

json role_of_eight() {
  const json spec = {{"containers", json::array({{{"name", "trainer"},
                                                  {"image", "i"},
                                                  {"command", {"train"}},
                                                  {"resources", {{"requests", {{"cpu", 1}}}}}}})}};
  return {{"name", "w"}, {"replicas", 8}, {"template", {{"spec", spec}}}};
}

json quota_of(int pods) {
  const json all = {{"pods", std::to_string(pods)}};
  return {{"metadata", {{"name", "team"}}},
          {"spec", {{"hard", all}}},
          {"status", {{"hard", all}, {"used", {{"pods", "0"}}}}}};
}

/// Writes for a job of eight pods, from its creation until it runs.
std::uint64_t writes_for_eight(ControllerBench& bench) {
  bench.add_node("n0", 8);
  bench.settle();
  const auto before = bench.writes();
  bench.add_job("j", {{"roles", json::array({role_of_eight()})}});
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
  EXPECT_EQ(bench.condition("j", "Placed")["reason"], "Bound");
  return bench.writes() - before;
}

TEST(OpenGangs, CostOneWriteAPodAndFewBeside) {
  ControllerBench open;
  // The job itself, two Services, a Secret, a dry run, the status at its placement, and two
  // statuses while pods are bound and start.
  EXPECT_LE(writes_for_eight(open), 8U + 8U);
  ControllerBench gated;
  gated.create(kube::kResourceQuotas, "default", quota_of(100));
  const std::uint64_t writes = writes_for_eight(gated);
  EXPECT_GE(writes, 16U) << "under a quota the set starts as a set";
  EXPECT_LE(writes, 16U + 9U);
}

TEST(OpenGangs, AreGatedIfAdmissionHoldsTheirPods) {
  ControllerBench bench;
  bench.add_node("n0", 8);
  bench.pods_wait = true;
  bool gated = true;
  bench.cluster().set_admission([&](const kube::Resource& resource, json& object) {
    if (resource.plural != kube::kPods.plural || !object.contains("spec")) return;
    json& gates = object["spec"]["schedulingGates"];
    const std::string name = object["metadata"]["name"];
    if (!name.ends_with("-check") && !object["metadata"].contains("uid"))
      gated = gated && gates.is_array() && !gates.empty();
    gates.push_back({{"name", "example.com/quota"}});
  });
  bench.add_job("j");
  bench.settle();
  ASSERT_EQ(bench.pods("j").size(), 2U);
  EXPECT_TRUE(gated);
}

TEST(OpenGangs, AreTakenBackIfAWebhookRefusesOnePod) {
  ControllerBench bench;
  bench.add_node("n0", 8);
  bool refuses = true;
  bench.cluster().set_faults([&](const http::Request& request) -> std::optional<kube::Fault> {
    const bool sixth = request.method == "POST" && request.body.contains("\"name\":\"j-w-5-");
    if (!refuses || !sixth) return std::nullopt;
    return kube::Fault{.status = 403, .message = "webhook says no"};
  });
  bench.add_job("j", {{"roles", json::array({role_of_eight()})}});
  bench.settle();
  EXPECT_TRUE(bench.pods("j").empty());
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Queued");
  EXPECT_EQ(bench.job("j")["status"]["reason"], "CreateRefused");
  refuses = false;
  bench.advance(std::chrono::minutes(1));
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
  EXPECT_EQ(bench.job("j")["status"]["restarts"], 0);
}

TEST(OpenGangs, AQuotaThatTheirOwnPodsFillRefusesNoRepeatedCreate) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.create(kube::kResourceQuotas, "default",
               {{"metadata", {{"name", "q"}}}, {"spec", {{"hard", {{"pods", "2"}}}}}});
  bench.settle();
  bench.pods_lag = true;
  int creates = 0;
  bench.cluster().set_faults([&](const http::Request& request) -> std::optional<kube::Fault> {
    const bool create = request.method == "POST" && request.target.contains("/pods") &&
                        !request.target.contains("dryRun");
    if (!create || ++creates > 2) return std::nullopt;
    return kube::Fault{.drop_after_apply = true};
  });
  bench.add_job("j");
  for (int second = 0; second < 3; ++second) bench.advance(std::chrono::seconds(1));
  EXPECT_GE(creates, 4) << "both were repeated";
  bench.pods_lag = false;
  for (int second = 0; second < 3; ++second) bench.advance(std::chrono::seconds(1));
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
  EXPECT_EQ(bench.cluster().counts().deletes, 0U) << "the gang is there, and is not taken back";
}

TEST(OpenGangs, KeepTheirRoomIfTheirJobIsDeletedBeforeTheOperatorSeesTheirPods) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.settle();
  bench.pods_lag = true;
  bench.add_job("j");
  for (int second = 0; second < 3; ++second) bench.advance(std::chrono::seconds(1));
  ASSERT_EQ(bench.pods("j").size(), 2U);
  // As with kubectl delete --cascade=foreground: the job stays until its pods have gone.
  bench.cluster().poke(kube::kTrainingJobs, "default", "j",
                       R"({"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z",
                           "finalizers":["foregroundDeletion"]}})");
  bench.add_job("k");
  for (int second = 0; second < 3; ++second) bench.advance(std::chrono::seconds(1));
  EXPECT_TRUE(bench.pods("k").empty()) << "the node is full";
  bench.pods_lag = false;
  for (const json& pod : bench.pods("j"))
    bench.cluster().erase(kube::kPods, "default", pod["metadata"]["name"].get<std::string>());
  bench.settle();
  EXPECT_EQ(bench.job("k")["status"]["phase"], "Running") << bench.job("k")["status"].dump(1);
}

TEST(OpenGangs, AreNotCompletedIfTheirJobWasSuspendedUnseen) {
  ControllerBench bench;
  bench.add_node("n0", 8);
  bool fails = true;
  int tries = 0;
  bench.cluster().set_faults([&](const http::Request& request) -> std::optional<kube::Fault> {
    if (request.method != "POST" || !request.body.contains("\"name\":\"j-w-1-0\""))
      return std::nullopt;
    ++tries;
    return fails ? std::optional(kube::Fault{.status = 500, .message = "not now"}) : std::nullopt;
  });
  bench.add_job("j");
  bench.settle();
  ASSERT_EQ(bench.pods("j").size(), 1U);
  fails = false;
  bench.jobs_lag = true;
  tries = 0;
  bench.patch_job("j", {{"spec", {{"suspend", true}}}});
  bench.advance(std::chrono::seconds(10));
  EXPECT_EQ(tries, 0) << "the operator looks at the job before it completes the gang";
  bench.jobs_lag = false;
  bench.settle();
  EXPECT_TRUE(bench.pods("j").empty());
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Suspended");
}

TEST(OpenGangs, AJobThatFindsRoomAtOnceIsNeverWrittenAsQueued) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  std::vector<std::string> phases;
  bench.cluster().set_observer([&](const kube::FakeSight& sight) {
    if (sight.resource.plural == kube::kTrainingJobs.plural && sight.object.contains("status"))
      phases.push_back(sight.object["metadata"]["name"].get<std::string>() + " " +
                       sight.object["status"]["phase"].get<std::string>());
  });
  bench.add_job("first");
  bench.settle();
  bench.add_job("second");
  bench.settle();
  ASSERT_FALSE(phases.empty());
  EXPECT_EQ(phases.front(), "first Starting");
  EXPECT_EQ(std::ranges::count(phases, "first Queued"), 0);
  EXPECT_EQ(std::ranges::count(phases, "second Queued"), 1) << "and one that waits says why";
  EXPECT_EQ(bench.job("second")["status"]["reason"], "WaitingForRoom");
}

}  // namespace
}  // namespace paceline::apply
