// SPDX-License-Identifier: Apache-2.0
// What the kind and the stage of a role change in the gang.
#include "tests/unit/launcher/rendezvous/gang_fixture.hpp"

namespace paceline::rendezvous {
namespace {

using contract::RoleKind;
using std::chrono::seconds;

TEST_F(RolesTest, TheJobEndsWithItsWorkersWhateverItsServersDo) {
  gather_roles({kServer, kWorker, kWorker, kEvaluator});
  say(of(1), Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  const auto actions = say(of(2), Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kSucceeded);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(sent<Finish>(actions, of(rank)).at(0).verdict, Verdict::kSucceeded) << rank;
  EXPECT_TRUE(say(of(0), Failed{0, killed(0)}).empty()) << "the verdict stopped it";
}

TEST_F(RolesTest, AServerThatEndsEarlyDecidesNothing) {
  gather_roles({kServer, kWorker});
  say(of(0), Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  say(of(1), Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kSucceeded);
}

TEST_F(RolesTest, ACoordinatorAndTheWorkersDecideTogether) {
  gather_roles({RoleKind::kCoordinator, kWorker});
  say(of(0), Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  say(of(1), Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kSucceeded);
}

TEST_F(RolesTest, ALauncherDecidesAlone) {
  gather_roles({kWorker, RoleKind::kLauncher, kWorker}, true);
  say(of(0), Done{0});
  say(of(2), Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  say(of(1), Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kSucceeded);
}

TEST_F(RolesTest, RankZeroOfTheTrainingNeedNotBeNodeRankZero) {
  gather_roles({kServer, kWorker, kWorker}, true);
  ASSERT_EQ(gang.table().nodes[1].first_rank, 0);
  say(of(0), Done{0});
  say(of(2), Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  say(of(1), Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kSucceeded);
}

TEST_F(RolesTest, AnEvaluatorThatFailsIsLoggedOnceAndStopsNobody) {
  gather_roles({kWorker, kWorker, kEvaluator});
  const auto actions = say(of(2), Failed{0, killed(1)});
  EXPECT_NE(lines(actions).find("rank 5 on pod-2 was killed by signal 9: it is an evaluator"),
            std::string::npos)
      << lines(actions);
  EXPECT_EQ(actions.size(), 1U);
  EXPECT_TRUE(say(of(2), Failed{0, {0, 127, std::nullopt, false, "NotExecutable", {}}}).empty());
  EXPECT_EQ(gang.restarts(), 0);
  EXPECT_FALSE(gang.culprit().has_value());
  say(of(0), Done{0});
  say(of(1), Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kSucceeded);
}

TEST_F(RolesTest, AnEvaluatorIsNeverTheCulpritAndStartsWithTheNextAttempt) {
  gather_roles({kWorker, kWorker, kEvaluator});
  say(of(2), Failed{0, killed(0)});
  say(of(0), Failed{0, killed(0)});
  auto died = killed(1);
  died.cause = Cause::kKilled;
  say(of(2), Failed{0, died});
  EXPECT_EQ(gang.culprit()->rank, 0);
  GangActions last;
  for (int rank = 0; rank < 3; ++rank) last = say(of(rank), Stopped{0});
  EXPECT_EQ(sent<Start>(last, of(2)).size(), 1U);
  EXPECT_FALSE(lines(say(of(2), Failed{1, killed(0)})).empty()) << "each attempt has its own line";
}

TEST_F(RolesTest, AServerThatFailsRestartsTheGang) {
  gather_roles({kServer, kWorker});
  EXPECT_EQ(sent<Stop>(say(of(0), Failed{0, killed(0)}), of(1)).size(), 1U);
  settle(0);
  EXPECT_EQ(gang.restarts(), 1);
  EXPECT_EQ(gang.culprit()->rank, 2) << "servers are numbered after the ranks of training";
}

TEST_F(RolesTest, OnlyThoseThatTheJobWaitsForAreNamedAsLate) {
  gather_roles({kServer, kWorker, kWorker});
  say(of(1), Done{0});
  std::string text;
  for (int second = 0; second < 70; ++second) {
    now += seconds(1);
    for (int rank = 0; rank < 3; ++rank) say(of(rank), Heartbeat{});
    text += lines(gang.on_tick(now));
  }
  EXPECT_NE(text.find("replica ended: pod-2; a program"), std::string::npos) << text;
}

TEST_F(RolesTest, StepsOfHelpersAreNoneOfTheTrainings) {
  gather_roles({kServer, kWorker, kEvaluator});
  telemetry::RankSummary summary;
  for (int rank = 0; rank < 3; ++rank) {
    summary.rank = gang.table().nodes[static_cast<std::size_t>(rank)].first_rank;
    say(of(rank), Heartbeat{{summary}});
  }
  ASSERT_EQ(gang.ranks().size(), 1U);
  EXPECT_EQ(gang.ranks()[0].node_rank, 1);
}

TEST_F(RolesTest, AStageStartsWhenAllOfTheStageBeforeHaveStarted) {
  const auto start =
      gather_roles({kServer, kServer, kWorker, kWorker, kEvaluator}, false, {0, 0, 1, 1, 2});
  for (int rank = 0; rank < 5; ++rank) {
    ASSERT_EQ(sent<Start>(start, of(rank)).size(), 1U) << rank;
    EXPECT_EQ(sent<Start>(start, of(rank))[0].stage, 0);
    EXPECT_EQ(sent<Start>(start, of(rank))[0].last_stage, 2);
  }
  EXPECT_EQ(tables(start).size(), 5U) << "the table does not wait";
  EXPECT_TRUE(say(of(0), Started{0}).empty());
  EXPECT_TRUE(say(of(0), Started{0}).empty()) << "one member counts once";
  EXPECT_TRUE(say(of(2), Started{0}).empty()) << "it was not told to start";
  EXPECT_EQ(told(say(of(1), Started{0})), (std::vector<ConnectionId>{of(2), of(3)}));
  say(of(2), Started{0});
  const auto last = say(of(3), Started{0});
  EXPECT_EQ(told(last), std::vector<ConnectionId>{of(4)});
  EXPECT_EQ(sent<StartStage>(last, of(4))[0].stage, 2);
}

TEST_F(RolesTest, AJobWithOneStageAsksForNoAnswer) {
  const auto start = gather_roles({kServer, kWorker}, false, {3, 3});
  EXPECT_EQ(sent<Start>(start, of(1)).at(0).stage, 3);
  EXPECT_EQ(sent<Start>(start, of(1)).at(0).last_stage, 3);
}

TEST_F(RolesTest, AFailureBeforeTheLastStageRestartsFromTheFirst) {
  gather_roles({kServer, kWorker}, false, {0, 1});
  say(of(0), Failed{0, killed(0)});
  say(of(0), Stopped{0});
  EXPECT_TRUE(told(say(of(0), Started{0})).empty()) << "of an earlier attempt";
  const auto again = say(of(1), Stopped{0});
  EXPECT_EQ(sent<Start>(again, of(1)).at(0).stage, 0);
  EXPECT_EQ(told(say(of(0), Started{1})), std::vector<ConnectionId>{of(1)});
}

TEST_F(RolesTest, AnAnswerOfALargeGangConcernsNobodyElse) {
  constexpr int kMembers = 1000;
  std::vector<int> stage_of(kMembers, 0);
  stage_of.back() = 1;
  gather_roles(std::vector<RoleKind>(kMembers, kWorker), false, stage_of);
  for (int rank = 0; rank + 2 < kMembers; ++rank)
    ASSERT_TRUE(say(of(rank), Started{0}).empty()) << rank;
  EXPECT_EQ(sent<StartStage>(say(of(kMembers - 2), Started{0}), of(kMembers - 1)).size(), 1U);
}

}  // namespace
}  // namespace paceline::rendezvous
