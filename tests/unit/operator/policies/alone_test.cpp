// SPDX-License-Identifier: Apache-2.0
// The loss of a replica that fails alone: it is replaced, and the others train on.
#include <gtest/gtest.h>

#include "operator/status/phase.hpp"
#include "tests/unit/operator/job_bench.hpp"

namespace paceline::plan {
namespace {

using nlohmann::json;
using std::chrono::minutes;

json role(const char* name, const char* kind, int replicas) {
  const json container = {{"name", "trainer"}, {"image", "i"}, {"command", {"train"}}};
  return {{"name", name},
          {"kind", kind},
          {"replicas", replicas},
          {"template", {{"spec", {{"containers", json::array({container})}}}}}};
}

/// Node rank 0 is the server, 1 and 2 are workers, 3 is the evaluator.
struct AloneTest : ::testing::Test {
  AloneTest() { bench.run(); }

  static json spec(const char* server = "ParameterServer") {
    return {{"failurePolicy", {{"maxRestarts", 1}}},
            {"roles", json::array({role("ps", server, 1), role("w", "Worker", 2),
                                   role("eval", "Evaluator", 1)})}};
  }

  /// Settles, and looks at every step whether the job runs.
  bool runs_through() {
    bool runs = true;
    for (int i = 0; i < 10; ++i) {
      bench.step();
      runs = runs && bench.status().phase == "Running";
    }
    return runs;
  }

  static status::Report summary(bool complete) {
    status::Report report;
    report.phase = "Running";
    report.complete = complete;
    return report;
  }

  JobBench bench{spec()};
};

TEST_F(AloneTest, AWorkerThatIsGoneIsReplacedAndTheAttemptGoesOn) {
  bench.pods.erase("j-w-1-0");
  EXPECT_TRUE(runs_through());
  EXPECT_EQ(bench.pod(2).incarnation, 1);
  EXPECT_TRUE(bench.status().is_true(status::kReplacing));
  EXPECT_FALSE(bench.status().is_true(status::kRestarting));
  EXPECT_EQ(bench.status().attempt, 0);
  EXPECT_EQ(bench.status().restarts, 0);
  bench.run();
  EXPECT_FALSE(bench.status().is_true(status::kReplacing));
  EXPECT_EQ(bench.created, 4 + 1);
}

TEST_F(AloneTest, AWorkerThatWasKilledCostsOneRestartAndThenTheJob) {
  bench.end(1, 137);
  EXPECT_TRUE(runs_through());
  EXPECT_EQ(bench.status().restarts, 1);
  EXPECT_EQ(bench.status().attempt, 0);
  bench.run();
  bench.end(2, 137);
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Failed");
  EXPECT_EQ(bench.status().reason, "RestartsExhausted");
}

TEST_F(AloneTest, AnEvaluatorCostsNothingHoweverOftenItIsKilled) {
  for (int i = 0; i < 3; ++i) {
    bench.end(3, 137);
    EXPECT_TRUE(runs_through()) << i;
    bench.advance(minutes(2));
    EXPECT_TRUE(runs_through()) << i;
    bench.run();
  }
  EXPECT_EQ(bench.status().restarts, 0);
  EXPECT_EQ(bench.status().attempt, 0);
  EXPECT_EQ(bench.pod(3).incarnation, 3);
}

TEST_F(AloneTest, AServerThatIsLostRestartsTheGang) {
  bench.pods.erase("j-ps-0-0");
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Restarting");
  EXPECT_EQ(bench.status().attempt, 1);
}

TEST_F(AloneTest, ALossOfBothIsALossOfTheGang) {
  bench.pods.erase("j-ps-0-0");
  bench.pods.erase("j-w-1-0");
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Restarting");
  EXPECT_EQ(bench.status().attempt, 1);
}

TEST_F(AloneTest, AGangThatRestartsMeanwhileIsShownSo) {
  bench.pods.erase("j-w-1-0");
  bench.settle();
  bench.memory.summary = summary(false);
  bench.memory.summary->phase = "Restarting";
  bench.step();
  EXPECT_EQ(bench.status().phase, "Restarting");
  EXPECT_FALSE(bench.status().is_true(status::kReplacing));
}

TEST_F(AloneTest, AWorkerOnASilentNodeIsReplacedOnceItsLauncherIsMissed) {
  for (const char* name : {"n0", "n1", "n2", "n3"}) {
    auto node = std::make_shared<observe::NodeView>();
    node->meta.name = name;
    node->ready = bench.pod(2).node != name;
    node->ready_since = bench.now;
    bench.nodes[name] = node;
  }
  bench.advance(minutes(10));
  bench.memory.summary = summary(true);
  bench.memory.summary_at = bench.now;
  bench.step();
  EXPECT_EQ(bench.pod_names().size(), 4U) << "only the kubelet is silent";
  bench.memory.summary = summary(false);
  EXPECT_TRUE(runs_through());
  EXPECT_EQ(bench.pods.count("j-w-1-0"), 0U);
  EXPECT_EQ(bench.status().attempt, 0);
}

TEST(Alone, WorkersWithoutServersOrWithASchedulerStopTogether) {
  for (const char* kind : {"Worker", "Scheduler"}) {
    JobBench bench(AloneTest::spec(kind));
    bench.run();
    bench.pods.erase("j-w-1-0");
    bench.settle();
    EXPECT_EQ(bench.status().phase, "Restarting") << kind;
    EXPECT_EQ(bench.status().attempt, 1) << kind;
  }
}

}  // namespace
}  // namespace paceline::plan
