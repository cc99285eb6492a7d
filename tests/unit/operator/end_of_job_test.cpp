// SPDX-License-Identifier: Apache-2.0
// How a job ends and what remains: success policy, deadline, which pods stay, and when the job is
// deleted.
#include <gtest/gtest.h>

#include "tests/unit/operator/job_bench.hpp"

namespace paceline::plan {
namespace {

using nlohmann::json;
using std::chrono::minutes;
using std::chrono::seconds;

json verdict(const char* word) {
  return {{"version", 1}, {"verdict", word}, {"attempt", 0}, {"restarts", 0}};
}

json roles_of(int replicas) {
  const json container = {{"name", "trainer"}, {"image", "i"}, {"command", {"train"}}};
  return {{"name", "w"},
          {"replicas", replicas},
          {"template", {{"spec", {{"containers", json::array({container})}}}}}};
}

/// The ways in which a job of two pods ends. In each of them pod 0 or pod 1 still has a process at
/// that moment.
void succeed(JobBench& bench) {
  bench.pod(1).sidecar = true;
  bench.end_all(0, verdict("Succeeded"));
}
void fail_by_verdict(JobBench& bench) { bench.end(1, 64, verdict("Failed")); }
void break_contract(JobBench& bench) { bench.end(1, 65, verdict("BadContract")); }
void run_too_long(JobBench& bench) { bench.advance(minutes(10)); }
void lose_the_last_restart(JobBench& bench) { bench.end(1, 137); }

TEST(CleanPodPolicy, EveryPolicyAtEveryEnd) {
  using Names = std::vector<std::string>;
  const Names none{};
  const Names first{"j-w-0-0"};
  const Names second{"j-w-1-0"};
  const Names both{"j-w-0-0", "j-w-1-0"};
  struct Case {
    const char* how;
    void (*end)(JobBench&);
    const char* phase;
    const char* reason;
    Names running, all, keep;  // the pods that stay under Running, All, None
  };
  const Case cases[] = {
      {"success beside a sidecar", succeed, "Succeeded", "Completed", first, none, both},
      {"the gang's own verdict", fail_by_verdict, "Failed", "RanksFailed", second, none, both},
      {"a contract that pod 0 does not know of", break_contract, "Failed", "BadContract", second,
       none, second},
      {"deadline", run_too_long, "Failed", "DeadlineExceeded", none, none, none},
      {"budget spent", lose_the_last_restart, "Failed", "RestartsExhausted", second, none, second},
  };
  for (const Case& test : cases) {
    const std::pair<const char*, const Names*> policies[] = {
        {"Running", &test.running}, {"All", &test.all}, {"None", &test.keep}};
    for (const auto& [policy, stays] : policies) {
      JobBench bench(nlohmann::json{{"cleanPodPolicy", policy},
                                    {"activeDeadline", "10m"},
                                    {"failurePolicy", {{"maxRestarts", 0}}}});
      bench.run();
      test.end(bench);
      bench.settle();
      EXPECT_EQ(bench.status().phase, test.phase) << test.how << " under " << policy;
      EXPECT_EQ(bench.status().reason, test.reason) << test.how << " under " << policy;
      EXPECT_EQ(bench.pod_names(), *stays) << test.how << " under " << policy;
      EXPECT_EQ(bench.created, 2) << test.how << " under " << policy;
    }
  }
}

TEST(TtlAfterFinished, DeletesWhenDueWhoeverLooksThen) {
  JobBench bench(nlohmann::json{{"ttlAfterFinished", "1h"}, {"cleanPodPolicy", "None"}});
  bench.run();
  bench.end_all(0, verdict("Succeeded"));
  EXPECT_EQ(bench.settle().requeue_after, std::chrono::hours(1));
  bench.advance(minutes(59) + seconds(59));
  bench.restart_operator();
  EXPECT_EQ(bench.step().requeue_after, seconds(1))
      << "another process goes by what is in the status";
  EXPECT_FALSE(bench.job_deleted);
  bench.advance(seconds(1));
  bench.step();
  EXPECT_TRUE(bench.job_deleted);
}

TEST(TtlAfterFinished, CountsFromTheEndOfAFailedJobToo) {
  JobBench bench(nlohmann::json{{"ttlAfterFinished", "5m"}, {"activeDeadline", "10m"}});
  bench.run();
  bench.advance(minutes(10));
  EXPECT_EQ(bench.settle().requeue_after, minutes(5));
  bench.advance(minutes(5));
  bench.step();
  EXPECT_TRUE(bench.job_deleted);
}

TEST(TtlAfterFinished, UnsetKeepsAndRunningKeeps) {
  JobBench unset;
  unset.run();
  unset.end_all(0, verdict("Succeeded"));
  unset.settle();
  unset.advance(std::chrono::hours(10000));
  EXPECT_FALSE(unset.step().requeue_after.has_value());
  EXPECT_FALSE(unset.job_deleted);
  JobBench running(nlohmann::json{{"ttlAfterFinished", "1m"}});
  running.run();
  running.advance(std::chrono::hours(24));
  running.settle();
  EXPECT_FALSE(running.job_deleted);
}

TEST(ActiveDeadline, CountsFromPlacementAndSurvivesTheOperator) {
  JobBench bench(nlohmann::json{{"activeDeadline", "10m"}});
  bench.settle();
  bench.advance(std::chrono::hours(5));
  EXPECT_EQ(bench.settle().status.phase, "Queued") << "waiting does not count";
  bench.run();
  bench.advance(minutes(4));
  bench.restart_operator();
  EXPECT_EQ(bench.step().requeue_after, minutes(6));
  bench.advance(minutes(6) - seconds(1));
  EXPECT_EQ(bench.settle().status.phase, "Running");
  bench.advance(seconds(1));
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Failed");
  EXPECT_EQ(bench.status().reason, "DeadlineExceeded");
  EXPECT_EQ(bench.status().message, "ran longer than spec.activeDeadline (10m)");
  EXPECT_TRUE(bench.status().completion_time.has_value());
}

TEST(ActiveDeadline, AReplacedPodGetsNoNewTime) {
  JobBench bench(nlohmann::json{{"activeDeadline", "10m"}});
  bench.run();
  bench.advance(minutes(9));
  bench.pods.erase("j-w-1-0");
  bench.settle();
  EXPECT_EQ(bench.pod(1).incarnation, 1);
  bench.advance(minutes(1));
  bench.settle();
  EXPECT_EQ(bench.status().reason, "DeadlineExceeded");
  EXPECT_TRUE(bench.pods.empty());
}

TEST(SuccessPolicy, RankZeroDecidesOrAllDo) {
  struct Case {
    const char* policy;
    const char* how;
    std::vector<int> ended;  // with exit code 0
    bool succeeded;
  };
  const Case cases[] = {
      {"RankZero", "rank 0 ended", {0}, true},       {"RankZero", "only rank 1 ended", {1}, false},
      {"RankZero", "both ended", {0, 1}, true},      {"AllRanks", "rank 0 ended", {0}, true},
      {"AllRanks", "only rank 1 ended", {1}, false}, {"AllRanks", "both ended", {0, 1}, true},
  };
  for (const Case& test : cases) {
    JobBench bench(nlohmann::json{{"successPolicy", test.policy}});
    bench.run();
    for (const int rank : test.ended) bench.end(rank, 0, verdict("Succeeded"));
    bench.settle();
    EXPECT_EQ(bench.status().phase, test.succeeded ? "Succeeded" : "Running")
        << test.policy << ", " << test.how;
    EXPECT_EQ(bench.status().restarts, 0);
  }
}

TEST(SuccessPolicy, AnotherPodLostOnItsWayOutChangesNothing) {
  for (const char* policy : {"RankZero", "AllRanks"}) {
    JobBench bench(nlohmann::json{{"successPolicy", policy}});
    bench.run();
    bench.end(0, 0, verdict("Succeeded"));
    bench.end(1, 137);
    bench.settle();
    EXPECT_EQ(bench.status().phase, "Succeeded") << policy;
    EXPECT_EQ(bench.created, 2) << policy;
  }
}

TEST(SuccessPolicy, AReplacementThatCameTooLateIsNotWaitedFor) {
  using Names = std::vector<std::string>;
  const std::pair<const char*, Names> cases[] = {
      {"Running", {"j-w-0-0", "j-w-2-0"}}, {"None", {"j-w-0-0", "j-w-2-0"}}, {"All", {}}};
  for (const auto& [policy, kept] : cases) {
    JobBench bench(
        nlohmann::json{{"cleanPodPolicy", policy}, {"roles", json::array({roles_of(3)})}});
    bench.run();
    bench.pods.erase("j-w-1-0");
    bench.settle();
    bench.pod(1).phase = observe::PodPhase::kRunning;
    // alone at the rendezvous, until its startup timeout
    bench.pod(1).trainer = observe::TrainerState::kRunning;
    bench.end(2, 0, verdict("Succeeded"));
    bench.end(0, 0, verdict("Succeeded"));
    const auto wake = bench.settle().requeue_after;
    EXPECT_EQ(bench.status().phase, "Succeeded") << policy;
    EXPECT_EQ(bench.status().roles[0].succeeded, 3)
        << policy << ": the verdict is about every rank";
    if (policy == std::string("All")) {
      EXPECT_EQ(bench.pod_names(), kept);
      continue;
    }
    EXPECT_EQ(bench.pod_names(), (Names{"j-w-0-0", "j-w-1-1", "j-w-2-0"}))
        << policy << ": it may be about to end";
    ASSERT_EQ(wake, seconds(40)) << policy << ": gracePeriod and ten seconds";
    bench.advance(*wake);
    bench.settle();
    EXPECT_EQ(bench.pod_names(), kept) << policy;
  }
}

json role(const char* name, const char* kind) {
  json value = roles_of(1);
  value["name"] = name;
  value["kind"] = kind;
  return value;
}

TEST(SuccessPolicy, AServerThatHostsTheRendezvousHasItsGracePeriodToEnd) {
  JobBench bench(
      nlohmann::json{{"successPolicy", "RankZero"},
                     {"roles", json::array({role("ps", "ParameterServer"), role("w", "Worker")})}});
  bench.run();
  bench.end(1, 0, verdict("Succeeded"));
  EXPECT_EQ(bench.settle().requeue_after, seconds(60)) << "its processes are stopped first";
  EXPECT_EQ(bench.status().phase, "Running");
  bench.end(0, 0, verdict("Succeeded"));
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Succeeded");
  EXPECT_EQ(bench.status().message, "rank 0 succeeded");
}

TEST(SuccessPolicy, RankZeroIsThatOfTheTraining) {
  JobBench bench(
      nlohmann::json{{"successPolicy", "RankZero"},
                     {"roles", json::array({role("ps", "ParameterServer"), role("w", "Worker")})}});
  bench.run();
  bench.end(0, 0, verdict("Succeeded"));
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Succeeded");
  EXPECT_EQ(bench.status().message, "all ranks succeeded") << "rank 0 itself has not ended yet";
}

TEST(SuccessPolicy, TheLauncherOfAJobIsNamed) {
  JobBench bench(
      nlohmann::json{{"framework", {{"type", "MPI"}}},
                     {"roles", json::array({role("w", "Worker"), role("launcher", "Launcher")})}});
  bench.run();
  bench.end_all(0, verdict("Succeeded"));
  bench.settle();
  EXPECT_EQ(bench.status().message, "the launcher succeeded");
}

TEST(SuccessPolicy, RankZerosReportIsWorthASmallWait) {
  json report = verdict("Succeeded");
  report["training"] = {{"step", 700}};
  JobBench told;
  told.run();
  told.end(1, 0, verdict("Succeeded"));
  EXPECT_EQ(told.settle().requeue_after, seconds(30));
  EXPECT_EQ(told.status().phase, "Running");
  EXPECT_EQ(told.status().reason, "Completing");
  told.advance(seconds(5));
  told.end(0, 0, report);
  told.settle();
  EXPECT_EQ(told.status().phase, "Succeeded");
  EXPECT_EQ(told.status().training["step"], 700);

  JobBench silent;
  silent.run();
  silent.end(1, 0, verdict("Succeeded"));
  silent.settle();
  silent.pods.erase("j-w-1-0");  // a success stays true after its pod is gone
  silent.restart_operator();
  silent.advance(seconds(29));
  EXPECT_EQ(silent.settle().requeue_after, seconds(1));
  EXPECT_EQ(silent.status().phase, "Running");
  silent.advance(seconds(1));
  silent.settle();
  EXPECT_EQ(silent.status().phase, "Succeeded");
  EXPECT_EQ(silent.created, 2);
}

TEST(SuccessPolicy, ReplacementsOnRecordAreNotMadeForAGangThatIsOver) {
  JobBench bench;
  bench.run();
  bench.pods.erase("j-w-1-0");
  bench.step();  // asks the API server whether the pod is gone
  bench.step();  // asks the scheduler for a node
  bench.step();  // records the replacement and creates it
  ASSERT_EQ(bench.status().reason, "Replacing");
  bench.pods.erase("j-w-1-1");  // as if the operator had died between the two steps
  bench.end(0, 0, verdict("Succeeded"));
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Succeeded");
  EXPECT_EQ(bench.created, 2 + 1);
  EXPECT_EQ(bench.pod_names(), std::vector<std::string>{"j-w-0-0"});
}

TEST(EndOfJob, NothingUndoesIt) {
  JobBench bench;
  bench.run();
  bench.end_all(0, verdict("Succeeded"));
  bench.settle();
  const api::JobStatus end = bench.status();
  bench.pods.clear();
  bench.change_spec({{"suspend", true}});
  bench.settle();
  bench.change_spec({{"suspend", false}});
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Succeeded");
  EXPECT_EQ(bench.status().completion_time, end.completion_time);
  EXPECT_EQ(bench.created, 2);
}

}  // namespace
}  // namespace paceline::plan
