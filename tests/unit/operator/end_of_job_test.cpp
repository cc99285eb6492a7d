// SPDX-License-Identifier: Apache-2.0
// How a job ends and what is left of it: success policy, deadline, which pods stay, when the job itself goes.
#include <gtest/gtest.h>

#include "tests/unit/operator/job_bench.hpp"

namespace paceline::plan {
namespace {

using nlohmann::json;
using std::chrono::minutes;
using std::chrono::seconds;

json verdict(const char* word) { return {{"version", 1}, {"verdict", word}, {"attempt", 0}, {"restarts", 0}}; }

/// The ways a job of two pods ends; in each of them pod 0 or pod 1 still has a process at that moment.
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
    Names running, all, keep;  // what stays under Running, All, None
  };
  const Case cases[] = {
      {"success beside a sidecar", succeed, "Succeeded", "Completed", first, none, both},
      {"the gang's own verdict", fail_by_verdict, "Failed", "RanksFailed", second, none, both},
      {"a contract that pod 0 does not know of", break_contract, "Failed", "BadContract", second, none, second},
      {"deadline", run_too_long, "Failed", "DeadlineExceeded", none, none, none},
      {"budget spent", lose_the_last_restart, "Failed", "RestartsExhausted", second, none, second},
  };
  for (const Case& test : cases) {
    const std::pair<const char*, const Names*> policies[] = {
        {"Running", &test.running}, {"All", &test.all}, {"None", &test.keep}};
    for (const auto& [policy, stays] : policies) {
      JobBench bench(nlohmann::json{
          {"cleanPodPolicy", policy}, {"activeDeadline", "10m"}, {"failurePolicy", {{"maxRestarts", 0}}}});
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
  EXPECT_EQ(bench.step().requeue_after, seconds(1)) << "another process goes by what is in the status";
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
      {"RankZero", "both ended", {0, 1}, true},      {"AllRanks", "rank 0 ended", {0}, false},
      {"AllRanks", "only rank 1 ended", {1}, false}, {"AllRanks", "both ended", {0, 1}, true},
  };
  for (const Case& test : cases) {
    JobBench bench(nlohmann::json{{"successPolicy", test.policy}});
    bench.run();
    for (const int rank : test.ended) bench.end(rank, 0, verdict("Succeeded"));
    bench.settle();
    EXPECT_EQ(bench.status().phase, test.succeeded ? "Succeeded" : "Running") << test.policy << ", " << test.how;
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
