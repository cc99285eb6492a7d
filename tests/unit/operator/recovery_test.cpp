// SPDX-License-Identifier: Apache-2.0
// Faults that the simulation and the fuzzer found once.
#include <gtest/gtest.h>

#include "operator/apply/agents.hpp"
#include "operator/plan/job/outcome.hpp"
#include "operator/status/phase.hpp"
#include "tests/unit/operator/job_bench.hpp"

namespace paceline::plan {
namespace {

TEST(Recovery, APlacementThatIsNotOfThisSpecIsTakenBack) {
  // A user who may write the status can write this. The operator must neither crash nor create pods
  // because of it.
  for (const bool roles : {true, false}) {
    JobBench bench;
    bench.run();
    if (roles) {
      bench.job.status.roles.clear();
    } else {
      bench.job.status.set_nodes({"n0", "n0", "n0"});
    }
    const Plan plan = bench.step();
    EXPECT_TRUE(plan.creates.empty());
    EXPECT_EQ(plan.deletes.size(), 2U);
    EXPECT_FALSE(plan.status.placed());
    EXPECT_TRUE(plan.status.is(status::kPlaced, "StatusDamaged"));
  }
}

TEST(Recovery, OneSuccessIsTheGangsWhenRankZeroIsLostOnItsWayOut) {
  JobBench bench({{"successPolicy", "RankZero"}, {"failurePolicy", {{"maxRestarts", 0}}}});
  bench.run();
  bench.end(1, 0, {{"version", 1}, {"verdict", "Succeeded"}, {"attempt", 0}, {"restarts", 0}});
  bench.end(0, 137);
  bench.settle();
  EXPECT_TRUE(bench.status().is_true(status::kSucceeded))
      << api::write_status(bench.status()).dump(1);
}

TEST(Recovery, AGatedPodThatEndedAndThatAFinalizerKeepsHoldsNoGangBack) {
  JobBench bench;
  bench.memory.admission = {"n0", "n1"};
  bench.step();
  bench.memory.admission.reset();
  BenchPod& kept = bench.pod(1);
  ASSERT_TRUE(kept.gated);
  kept.phase = observe::PodPhase::kFailed;
  kept.deleting = true;
  kept.lingers = true;
  bench.settle();
  EXPECT_EQ(bench.status().reason, "CreateRefused");
  EXPECT_EQ(bench.pod_names(), std::vector<std::string>{"j-w-1-0"}) << "the rest is taken back";
  bench.memory.admission = {"n0", "n1"};
  bench.advance(std::chrono::minutes(1));
  bench.step();
  EXPECT_EQ(bench.pod_names(), (std::vector<std::string>{"j-w-0-1", "j-w-1-0", "j-w-1-1"}));
}

TEST(Recovery, AGatedPodThatIsDeletedAndThatAFinalizerKeepsHoldsNoGangBack) {
  JobBench bench;
  bench.memory.admission = {"n0", "n1"};
  bench.step();
  bench.memory.admission.reset();
  ASSERT_TRUE(bench.pod(1).gated);
  bench.pod(1).deleting = true;
  bench.pod(1).lingers = true;
  bench.settle();
  EXPECT_EQ(bench.status().reason, "CreateRefused");
}

TEST(Recovery, AnImageThatCannotBePulledCostsNoRestartAndIsNamed) {
  JobBench bench(nlohmann::json{{"failurePolicy", {{"maxRestarts", 0}}}});
  bench.run();
  BenchPod& blocked = bench.pod(1);
  blocked.phase = observe::PodPhase::kPending;
  blocked.trainer = observe::TrainerState::kWaiting;
  blocked.reason = "ImagePullBackOff";
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Starting");
  EXPECT_EQ(bench.status().reason, "ImagePullBackOff");
  // After its startup timeout the other launcher gives up.
  bench.end(0, 66, {{"version", 1}, {"verdict", "RendezvousTimeout"}});
  bench.settle();
  EXPECT_FALSE(bench.status().finished()) << api::write_status(bench.status()).dump(1);
  EXPECT_EQ(bench.status().restarts, 0);
  EXPECT_TRUE(bench.pods.contains("j-w-0-1")) << "the pod that gave up is replaced";
}

TEST(Recovery, AnImageThatIsMissingIsNamedWhileTheGangRestarts) {
  JobBench bench;
  bench.run();
  bench.pods.erase("j-w-1-0");
  bench.settle();
  BenchPod& blocked = bench.pod(1);
  ASSERT_EQ(blocked.incarnation, 1);
  blocked.phase = observe::PodPhase::kPending;
  blocked.trainer = observe::TrainerState::kWaiting;
  blocked.reason = "ImagePullBackOff";
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Restarting");
  EXPECT_EQ(bench.status().reason, "ImagePullBackOff") << bench.status().message;
}

TEST(Recovery, AnEvictionForALimitOfItsOwnCostsARestart) {
  const auto pod_that_says = [](const char* message) {
    const nlohmann::json pod = {
        {"metadata",
         {{"name", "p"},
          {"labels", {{"paceline.dev/job-uid", "u"}}},
          {"ownerReferences",
           nlohmann::json::array(
               {{{"kind", "TrainingJob"}, {"uid", "u"}, {"name", "j"}, {"controller", true}}})}}},
        {"status",
         {{"phase", "Failed"},
          {"reason", "Evicted"},
          {"message", message},
          {"conditions",
           nlohmann::json::array({{{"type", "DisruptionTarget"}, {"status", "True"}}})}}}};
    const auto view = observe::project_pod(pod.dump()).value();
    return judge(&view).outcome;
  };
  for (const char* own :
       {"Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
        "Container trainer exceeded its local ephemeral storage limit \"1Gi\". ",
        "Usage of EmptyDir volume \"cache\" exceeds the limit \"1Gi\". "})
    EXPECT_EQ(pod_that_says(own), Outcome::kKilled) << own;
  for (const char* other :
       {"The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. ",
        "The node had condition: [DiskPressure]. "})
    EXPECT_EQ(pod_that_says(other), Outcome::kLost) << other;
}

TEST(Recovery, AGangThatIsNotBoundInTimeIsTakenBack) {
  JobBench bench(nlohmann::json{{"scheduling", {{"gangTimeout", "5m"}}}});
  bench.run();
  BenchPod& unbound = bench.pod(1);
  unbound.node.clear();
  unbound.phase = observe::PodPhase::kPending;
  unbound.trainer = observe::TrainerState::kNone;
  unbound.created = bench.now;
  bench.advance(std::chrono::minutes(4));
  EXPECT_TRUE(bench.step().status.placed());
  bench.advance(std::chrono::minutes(1));
  const Plan plan = bench.step();
  EXPECT_FALSE(plan.status.placed());
  EXPECT_TRUE(plan.status.is(status::kPlaced, "BindTimeout"))
      << api::write_status(plan.status).dump(1);
}

TEST(Recovery, RequestsOfTheWholePodReplaceThoseOfItsContainers) {
  const nlohmann::json pod = {
      {"metadata", {{"name", "p"}}},
      {"spec",
       {{"resources", {{"requests", {{"cpu", "8"}, {"memory", "1Gi"}}}}},
        {"overhead", {{"cpu", "1"}}},
        {"containers",
         nlohmann::json::array(
             {{{"name", "a"}, {"resources", {{"requests", {{"cpu", "2"}}}}}}, {{"name", "b"}}})}}}};
  const auto view = observe::project_pod(pod.dump()).value();
  EXPECT_EQ(view.requests.cpu, 9000);
  EXPECT_EQ(view.requests.memory, (1LL << 30) * 1000);
}

TEST(Recovery, AnAgentWhoseClockIsWrongIsAliveWhileItsLeaseChanges) {
  apply::AgentTracker tracker;
  const WallTime wall{std::chrono::hours(100)};
  const SteadyTime steady{std::chrono::hours(1)};
  const auto living = [&](std::chrono::seconds passed, std::chrono::seconds renewed) {
    return !tracker
                .living({{"n0", WallTime(renewed), std::chrono::seconds(40)}}, wall + passed,
                        steady + passed)
                .empty();
  };
  using std::chrono::hours;
  using std::chrono::seconds;
  // The agent's clock is an hour late: it counts from its first renewal that is seen.
  EXPECT_FALSE(living(seconds(0), hours(99)));
  EXPECT_TRUE(living(seconds(10), hours(99) + seconds(10)));
  EXPECT_TRUE(living(seconds(60), hours(99) + seconds(10)));
  EXPECT_FALSE(living(seconds(90), hours(99) + seconds(10))) << "two durations without a renewal";
  // Another agent's clock is an hour early: it lives no longer for that.
  apply::AgentTracker other;
  const std::vector<apply::AgentLease> early = {{"n1", WallTime(hours(101)), seconds(40)}};
  EXPECT_EQ(other.living(early, wall, steady).size(), 1U);
  EXPECT_TRUE(other.living(early, wall + seconds(81), steady + seconds(81)).empty());
}

}  // namespace
}  // namespace paceline::plan
