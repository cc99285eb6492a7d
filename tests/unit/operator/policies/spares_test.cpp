// SPDX-License-Identifier: Apache-2.0
// failurePolicy.spares: a gang whose launchers do without a lost replica.
#include <gtest/gtest.h>

#include "operator/status/phase.hpp"
#include "tests/unit/operator/job_bench.hpp"

namespace paceline::plan {
namespace {

using nlohmann::json;
using std::chrono::minutes;
using std::chrono::seconds;

/// Two workers, and one spare: node rank 2.
struct SparesTest : ::testing::Test {
  SparesTest() { bench.run(); }

  static json spec() { return {{"failurePolicy", {{"maxRestarts", 1}, {"spares", 1}}}}; }

  /// As rank 0's launcher says.
  void hear(const std::string& phase, int attempt) {
    status::Report report;
    report.phase = phase;
    report.attempt = attempt;
    bench.memory.summary = report;
    bench.memory.summary_at = bench.now;
  }

  /// While a replica waits for a node, every plan asks the scheduler again.
  void look() {
    for (int i = 0; i < 6; ++i) bench.step();
  }

  void lose(int rank, bool forever = true) {
    if (forever) bench.no_node.insert(rank);
    bench.pods.erase("j-w-" + std::to_string(rank) + "-0");
  }

  JobBench bench{spec()};
};

TEST_F(SparesTest, AreTheLastPodsOfTheGang) {
  EXPECT_EQ(bench.pod_names(), (std::vector<std::string>{"j-w-0-0", "j-w-1-0", "j-w-2-0"}));
  EXPECT_EQ(bench.status().pod_counts->ready, 3);
}

TEST_F(SparesTest, ALostWorkerIsReplacedWhileTheGangRestartsWithoutIt) {
  lose(1, false);
  for (int i = 0; i < 3; ++i) {
    bench.step();
    EXPECT_TRUE(bench.status().is_true(status::kRunning)) << i;
  }
  hear("Restarting", 1);
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Restarting");
  EXPECT_EQ(bench.pod(1).incarnation, 1);
  hear("Running", 1);
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Running");
  bench.run();
  EXPECT_FALSE(bench.status().is_true(status::kReplacing));
  EXPECT_EQ(bench.status().attempt, 1) << "which the launcher counted";
  EXPECT_EQ(bench.status().disruptions, 1);
  EXPECT_EQ(bench.created, 3 + 1);
}

TEST_F(SparesTest, NothingBoundsTheWaitForANodeWhileTheGangTrains) {
  lose(1);
  look();
  hear("Restarting", 1);
  look();
  hear("Running", 1);
  look();
  for (int i = 0; i < 5; ++i) {
    bench.advance(minutes(5));
    hear("Running", 1);
    look();
    EXPECT_EQ(bench.status().phase, "Running") << i;
  }
  EXPECT_TRUE(bench.status().is(status::kReplacing, "WaitingForNode"));
  bench.no_node.clear();
  bench.run();
  EXPECT_FALSE(bench.status().is_true(status::kReplacing));
}

TEST_F(SparesTest, AGangThatDoesNotComeBackIsBounded) {
  lose(1);
  look();
  hear("Restarting", 1);
  look();
  EXPECT_TRUE(bench.status().placed());
  bench.advance(minutes(3));
  hear("Restarting", 1);
  look();
  bench.advance(minutes(3));
  hear("Restarting", 1);
  look();
  EXPECT_EQ(bench.status().phase, "Queued") << bench.status().message;
}

TEST_F(SparesTest, MoreLossesThanSparesAreALossOfTheGang) {
  lose(1);
  lose(2);
  look();
  EXPECT_EQ(bench.status().phase, "Restarting");
  EXPECT_FALSE(bench.status().is_true(status::kRunning));
}

TEST_F(SparesTest, ASpareMakesRoomForNodeRankZero) {
  lose(0);
  bench.no_node = {0, 2};  // the room of the spare is the only one
  look();
  EXPECT_EQ(bench.status().phase, "Restarting");
  EXPECT_FALSE(bench.pods.contains("j-w-2-0")) << "it leaves its node";
  bench.no_node = {2};
  look();
  EXPECT_EQ(bench.pod(0).incarnation, 1);
  bench.pod(0).phase = observe::PodPhase::kRunning;
  bench.pod(0).trainer = observe::TrainerState::kRunning;
  hear("Running", 1);
  look();
  EXPECT_EQ(bench.status().phase, "Running") << bench.status().message;
  EXPECT_TRUE(bench.status().is(status::kReplacing, "WaitingForNode"))
      << "a node for the spare may come";
  for (int i = 0; i < 3; ++i) {
    bench.advance(minutes(5));
    hear("Running", 1);
    look();
    EXPECT_EQ(bench.status().phase, "Running") << i;
  }
  bench.no_node.clear();
  bench.run();
  EXPECT_FALSE(bench.status().is_true(status::kReplacing));
}

TEST_F(SparesTest, AGangThatStartsWithAStandInRuns) {
  JobBench fresh(spec());
  fresh.memory.admission = {{"n0", "n1", "n2"}};
  fresh.step();
  fresh.memory.admission.reset();
  fresh.settle();
  for (const int rank : {0, 2}) {
    fresh.pod(rank).phase = observe::PodPhase::kRunning;
    fresh.pod(rank).trainer = observe::TrainerState::kRunning;
  }
  fresh.pod(1).node.clear();  // it is not bound
  fresh.settle();
  EXPECT_FALSE(fresh.status().is_true(status::kRunning));
  fresh.memory.summary.emplace();
  fresh.memory.summary->phase = "Running";
  for (int i = 0; i < 3; ++i) {
    fresh.advance(minutes(1));
    fresh.step();
    EXPECT_EQ(fresh.status().phase, "Running") << i << fresh.status().message;
    EXPECT_TRUE(fresh.status().is(status::kPlaced, "Bound")) << i;
  }
}

TEST_F(SparesTest, APodOnADeadNodeGoesAlthoughItsPlaceIsTaken) {
  for (const char* name : {"n0", "n1", "n2"}) {
    auto node = std::make_shared<observe::NodeView>();
    node->meta.name = name;
    node->ready = bench.pod(1).node != name;
    node->ready_since = bench.now;
    bench.nodes[name] = node;
  }
  bench.advance(minutes(10));
  bench.no_node = {1};
  const json told = {{"version", 1},  {"phase", "Running"}, {"attempt", 1},  {"restarts", 0},
                     {"gathered", 2}, {"expected", 2},      {"missing", {1}}};
  bench.memory.summary = status::read_report(told.dump());
  ASSERT_TRUE(bench.memory.summary);
  bench.memory.summary_at = bench.now;
  look();
  EXPECT_FALSE(bench.pods.contains("j-w-1-0"));
  EXPECT_EQ(bench.status().phase, "Running");
}

TEST_F(SparesTest, ALossOfSeveralIsChargedOnceAndDoesNotEndTheJob) {
  bench.end(0, 137);
  bench.end(1, 137);
  bench.no_node = {1};
  look();
  EXPECT_EQ(bench.pod(0).incarnation, 1);
  EXPECT_EQ(bench.status().restarts, 1);
  EXPECT_FALSE(bench.pods.contains("j-w-1-0"));
  EXPECT_EQ(bench.status().nodes()[1], "") << "another replica may have it";
  bench.pod(0).phase = observe::PodPhase::kRunning;
  bench.pod(0).trainer = observe::TrainerState::kRunning;
  hear("Running", 1);
  look();
  EXPECT_EQ(bench.status().phase, "Running") << bench.status().message;
  EXPECT_EQ(bench.status().restarts, 1);
  bench.no_node.clear();
  look();
  EXPECT_EQ(bench.pod(1).incarnation, 1);
  EXPECT_EQ(bench.status().restarts, 1);
  EXPECT_EQ(bench.status().disruptions, 0);
}

TEST_F(SparesTest, ARefusedReplacementDoesNotStopTheGangThatRunsWithoutIt) {
  lose(0, false);
  lose(1, false);
  bench.refused = {1};
  look();
  ASSERT_EQ(bench.pod(0).incarnation, 1);
  ASSERT_EQ(bench.refusals, 1);
  bench.pod(0).phase = observe::PodPhase::kRunning;
  bench.pod(0).trainer = observe::TrainerState::kRunning;
  hear("Running", 1);
  look();
  EXPECT_EQ(bench.status().phase, "Running") << bench.status().message;
  EXPECT_TRUE(bench.status().is(status::kReplacing, "Replacing"));
  bench.refused.clear();
  bench.advance(minutes(1));
  bench.run();
  EXPECT_EQ(bench.pod(1).incarnation, 1) << "it was lost once";
  EXPECT_EQ(bench.status().disruptions, 1);
  EXPECT_FALSE(bench.status().is_true(status::kReplacing));
}

TEST_F(SparesTest, ALossIsChargedOnceThoughItsPodIsStillThere) {
  bench.pod(1).lingers = true;
  bench.end(0, 137);
  bench.end(1, 137);
  bench.no_node = {1};
  look();
  ASSERT_EQ(bench.status().restarts, 1);
  bench.pod(1).deleting = false;  // the request failed, and the operator died
  bench.restart_operator();
  look();
  EXPECT_NE(bench.status().phase, "Failed") << bench.status().message;
  EXPECT_EQ(bench.status().restarts, 1);
  EXPECT_TRUE(bench.pod(1).deleting);
}

TEST_F(SparesTest, AnOperatorThatKnowsNothingGoesOnAlike) {
  lose(1);
  look();
  hear("Running", 1);
  look();
  bench.restart_operator();
  bench.no_node.clear();
  look();
  EXPECT_EQ(bench.pod(1).incarnation, 1);
  hear("Running", 1);
  bench.run();
  EXPECT_EQ(bench.status().phase, "Running");
  EXPECT_EQ(bench.created, 3 + 1);
}

TEST_F(SparesTest, AWorkerThatIsKilledCostsARestartAsElsewhere) {
  bench.end(1, 137);
  bench.settle();
  EXPECT_EQ(bench.status().restarts, 1);
  bench.run();
  bench.end(2, 137);
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Failed");
  EXPECT_EQ(bench.status().reason, "RestartsExhausted");
}

}  // namespace
}  // namespace paceline::plan
