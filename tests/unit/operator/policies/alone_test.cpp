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

TEST_F(AloneTest, AReplacementThatWaitsForItsPredecessorIsNotReplacedItself) {
  bench.pod(2).sidecar = true;  // as a kubelet tells of a trainer's end before the pod's
  bench.pod(2).lingers = true;
  bench.end(2, 137);
  EXPECT_TRUE(runs_through());
  EXPECT_EQ(bench.status().roles[1].incarnations, (std::vector{0, 1}));
  EXPECT_TRUE(bench.memory.gone.empty()) << "it was never there";
  bench.pods.erase("j-w-1-0");
  EXPECT_TRUE(runs_through());
  EXPECT_EQ(bench.pod(2).incarnation, 1);
  EXPECT_EQ(bench.created, 4 + 1);
}

TEST_F(AloneTest, APredecessorWhoseDeletionFailedIsDeletedAgain) {
  bench.change_spec({{"cleanPodPolicy", "None"}});
  bench.run();
  bench.pod(2).sidecar = true;
  bench.pod(2).lingers = true;
  bench.end(2, 137);
  EXPECT_TRUE(runs_through());
  bench.pods.at("j-w-1-0").deleting = false;
  EXPECT_TRUE(runs_through());
  EXPECT_TRUE(bench.pods.at("j-w-1-0").deleting);
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

TEST_F(AloneTest, AnEvaluatorWithoutANodeHoldsUpNothing) {
  bench.no_node = {3};
  bench.pods.erase("j-eval-0-0");
  EXPECT_TRUE(runs_through());
  EXPECT_TRUE(bench.status().is(status::kReplacing, "WaitingForNode"));
  bench.memory.summary = summary(false);
  bench.memory.summary->training = {{"step", 7}};
  bench.step();
  EXPECT_EQ(bench.status().training["step"], 7) << "what the others measure is still told";
  bench.end(1, 137);
  EXPECT_TRUE(runs_through());
  EXPECT_EQ(bench.pod(1).incarnation, 1);
  EXPECT_EQ(bench.status().restarts, 1);
  EXPECT_EQ(bench.pod_names().size(), 3U) << "the evaluator still waits";
  bench.no_node.clear();
  EXPECT_TRUE(runs_through());
  EXPECT_EQ(bench.pod(3).incarnation, 1);
  EXPECT_EQ(bench.status().restarts, 1) << "counted once";
}

TEST_F(AloneTest, AReplicaThatIsDelayedHoldsUpNoOther) {
  for (int i = 0; i < 2; ++i) {
    bench.end(3, 137);
    bench.run();
  }
  bench.end(3, 137);
  bench.step();
  bench.pods.erase("j-w-0-0");
  EXPECT_TRUE(runs_through());
  EXPECT_EQ(bench.pod(1).incarnation, 1);
  EXPECT_EQ(bench.pod(3).incarnation, 2) << "lost for the third time";
  bench.advance(std::chrono::seconds(2));
  EXPECT_TRUE(runs_through());
  EXPECT_EQ(bench.pod(3).incarnation, 3);
}

TEST_F(AloneTest, AReplacementThatIsRefusedHoldsUpNoOther) {
  bench.refused = {1};
  bench.pods.erase("j-w-0-0");
  EXPECT_TRUE(runs_through());
  EXPECT_EQ(bench.refusals, 1) << "tried again after a pause";
  bench.end(2, 137);
  EXPECT_TRUE(runs_through());
  EXPECT_EQ(bench.pod(2).incarnation, 1);
  EXPECT_LE(bench.refusals, 2);
  bench.advance(std::chrono::seconds(10));
  bench.refused.clear();
  EXPECT_TRUE(runs_through());
  EXPECT_EQ(bench.pod_names().size(), 4U);
}

TEST_F(AloneTest, ARefusalDoesNotKeepALostServerAway) {
  bench.refused = {1};
  bench.pods.erase("j-w-0-0");
  bench.settle();
  bench.end(0, 143);
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Restarting");
  EXPECT_FALSE(bench.status().is_true(status::kReplacing));
  bench.advance(minutes(3));
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Queued") << "gangTimeout bounds the wait";
}

TEST_F(AloneTest, AReplacementThatIsNotBoundGetsAnotherNode) {
  bench.pods.erase("j-w-0-0");
  bench.settle();
  bench.pod(1).unbound = true;
  bench.advance(minutes(1));
  bench.settle();
  EXPECT_EQ(bench.pod(1).incarnation, 1);
  bench.advance(minutes(2));
  EXPECT_TRUE(runs_through());
  EXPECT_EQ(bench.pod(1).incarnation, 2);
  EXPECT_EQ(bench.pod(0).incarnation, 0);
}

TEST_F(AloneTest, AReplacementThatIsNotBoundCostsNoFurtherDisruption) {
  json strict = spec();
  strict["failurePolicy"]["maxDisruptions"] = 1;
  JobBench job(strict);
  job.run();
  job.pods.erase("j-w-0-0");
  job.settle();
  ASSERT_EQ(job.status().disruptions, 1);
  for (const int incarnation : {2, 3}) {
    job.pod(1).unbound = true;
    job.advance(minutes(3));
    job.step();
    job.restart_operator();
    job.settle();
    EXPECT_EQ(job.status().phase, "Running") << job.status().message;
    EXPECT_EQ(job.pod(1).incarnation, incarnation);
    EXPECT_EQ(job.pod(1).node, "spare") << "its old node is not on record";
    EXPECT_EQ(job.status().disruptions, 1);
  }
}

TEST_F(AloneTest, AReplacementThatIsNotBoundHoldsNoSuccessorBackIfAFinalizerKeepsIt) {
  bench.pods.erase("j-w-0-0");
  bench.settle();
  bench.pod(1).unbound = true;
  bench.pod(1).lingers = true;
  bench.advance(minutes(3));
  EXPECT_TRUE(runs_through());
  EXPECT_EQ(bench.pod(1).incarnation, 2);
  EXPECT_EQ(bench.pod(1).node, "spare");
  EXPECT_TRUE(bench.pods.at("j-w-0-1").deleting) << "it is still there";
  EXPECT_EQ(bench.status().disruptions, 1) << "of the loss before it";
}

TEST_F(AloneTest, APodThatLacksWhatTheJobRequiresIsReplacedElsewhere) {
  bench.end(3, 67, {{"version", 1}, {"verdict", "PreflightFailed"}, {"message", "no GPU"}});
  EXPECT_TRUE(runs_through());
  EXPECT_EQ(bench.pod(3).incarnation, 1);
  ASSERT_EQ(bench.status().excluded_nodes.size(), 1U);
  EXPECT_EQ(bench.status().excluded_nodes[0].name, "n3");
  EXPECT_EQ(bench.status().restarts, 0);
}

TEST_F(AloneTest, AReplacementOfAnotherReleaseIsReplacedAndAGangOfTwoIsPlacedAgain) {
  const json refused = {{"version", 1}, {"verdict", "OtherRelease"}, {"message", "protocol 9"}};
  bench.pods.erase("j-w-0-0");
  bench.run();
  bench.end(1, 65, refused);
  EXPECT_TRUE(runs_through());
  EXPECT_EQ(bench.pod(1).incarnation, 2);
  bench.run();
  bench.end(2, 65, refused);
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Queued");
  EXPECT_EQ(bench.status().reason, "RuntimeChanged");
  EXPECT_EQ(bench.status().restarts, 0);
}

TEST_F(AloneTest, AnUpgradeLeavesALostEvaluatorAway) {
  bench.job.status.contract = 1;
  bench.pods.erase("j-eval-0-0");
  EXPECT_TRUE(runs_through());
  EXPECT_TRUE(bench.status().is(status::kReplacing, "RuntimeChanged"));
  bench.pods.erase("j-w-0-0");
  bench.settle();
  EXPECT_EQ(bench.status().reason, "RuntimeChanged") << "a worker is needed";
  EXPECT_EQ(bench.status().phase, "Queued");
}

TEST_F(AloneTest, APodWhoseLauncherIsThereStaysThoughAnotherIsMissing) {
  for (const char* name : {"n0", "n1", "n2", "n3"}) {
    auto node = std::make_shared<observe::NodeView>();
    node->meta.name = name;
    node->ready = bench.pod(2).node != name;
    node->ready_since = bench.now;
    bench.nodes[name] = node;
  }
  bench.no_node = {3};
  bench.pods.erase("j-eval-0-0");
  bench.advance(minutes(10));
  bench.memory.summary = summary(false);
  bench.memory.summary->missing = {3};
  bench.memory.summary_at = bench.now;
  runs_through();
  EXPECT_TRUE(bench.pods.contains("j-w-1-0")) << "only the kubelet is silent";
  bench.memory.summary->missing = {2, 3};
  runs_through();
  EXPECT_FALSE(bench.pods.contains("j-w-1-0"));
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
