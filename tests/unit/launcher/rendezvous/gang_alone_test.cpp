// SPDX-License-Identifier: Apache-2.0
// Members that fail alone: the workers of a job with parameter servers, and evaluators.
#include "tests/unit/launcher/rendezvous/gang_fixture.hpp"

namespace paceline::rendezvous {
namespace {

using contract::RoleKind;
using std::chrono::seconds;

/// Node rank 0 is the server, 1 and 2 are workers, 3 is the evaluator.
struct AloneTest : RolesTest {
  AloneTest() { gather_roles({kServer, kWorker, kWorker, kEvaluator}); }

  /// The members that are sent a message of this kind.
  template <typename T>
  static std::vector<ConnectionId> given(const GangActions& actions) {
    std::vector<ConnectionId> to;
    for (ConnectionId id = 1; id < 300; ++id) {
      if (!sent<T>(actions, id).empty()) to.push_back(id);
    }
    return to;
  }
};

TEST_F(AloneTest, AWorkerThatFailsRestartsItsReplicaOnly) {
  const auto stop = say(of(1), Failed{0, killed(1)});
  EXPECT_EQ(given<Stop>(stop), std::vector<ConnectionId>{of(1)});
  EXPECT_NE(lines(stop).find("rank 1 on pod-1 was killed by signal 9: restart 1 of 1, its replica"),
            std::string::npos)
      << lines(stop);
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  EXPECT_EQ(gang.culprit()->rank, 1);
  EXPECT_TRUE(say(of(1), Failed{0, killed(1)}).empty()) << "what it tells with its answer";
  EXPECT_TRUE(say(of(1), Stopping{0}).empty());
  const auto start = say(of(1), Stopped{0});
  EXPECT_EQ(given<Start>(start), std::vector<ConnectionId>{of(1)});
  EXPECT_EQ(tables(start), std::vector<ConnectionId>{of(1)});
  EXPECT_EQ(sent<Start>(start, of(1))[0].attempt, 0) << "the attempt of the others";
  EXPECT_EQ(sent<Start>(start, of(1))[0].restarts, 1);
  say(of(1), Done{0});
  say(of(2), Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kSucceeded);
}

TEST_F(AloneTest, WithoutARestartLeftItsFailureIsTheJobs) {
  say(of(1), Failed{0, killed(1)});
  say(of(1), Stopped{0});
  now += kOneCause;
  const auto stop = say(of(2), Failed{0, killed(0)});
  EXPECT_EQ(given<Stop>(stop).size(), 4U);
  for (int rank = 0; rank < 4; ++rank) say(of(rank), Stopping{0});
  EXPECT_EQ(gang.phase(), GangPhase::kFailed);
  EXPECT_EQ(gang.culprit()->rank, 2);
}

TEST_F(AloneTest, WorkersThatFailTogetherCostOneRestart) {
  gather_roles({kServer, kWorker, kWorker, kWorker, kWorker});
  for (int rank = 1; rank <= 4; ++rank) {
    now += seconds(2);
    const auto stop = say(of(rank), Failed{0, killed(0)});
    EXPECT_EQ(given<Stop>(stop), std::vector<ConnectionId>{of(rank)});
    say(of(rank), Stopped{0});
    EXPECT_EQ(gang.restarts(), 1);
  }
  EXPECT_EQ(given<Stop>(say(of(1), Failed{0, killed(0)})).size(), 5U) << "it fails again by itself";
}

TEST_F(AloneTest, WorkersThatLostTheSameServerCostOneRestartAndAreNamed) {
  say(of(1), Failed{0, raised(0, Cause::kPeer, seconds(0))});
  now += seconds(1);
  say(of(2), Failed{0, raised(1, Cause::kPeer, seconds(0))});
  now += seconds(2);
  auto stop = gang.on_tick(now);
  EXPECT_EQ(given<Stop>(stop), std::vector<ConnectionId>{of(1)});
  EXPECT_NE(lines(stop).find("rank 0 on pod-1"), std::string::npos) << lines(stop);
  EXPECT_EQ(gang.culprit()->rank, 0);
  now += seconds(1);
  stop = gang.on_tick(now);
  EXPECT_EQ(given<Stop>(stop), std::vector<ConnectionId>{of(2)});
  EXPECT_NE(lines(stop).find("rank 3 on pod-2"), std::string::npos) << lines(stop);
  EXPECT_EQ(gang.restarts(), 1);
}

TEST_F(AloneTest, TheWorkerThatHasNoRestartLeftIsNamed) {
  gather_roles({kServer, kWorker, kWorker, kWorker});
  say(of(1), Failed{0, killed(0)});
  say(of(1), Stopped{0});
  now += seconds(9);
  for (int rank = 0; rank < 4; ++rank) say(of(rank), Heartbeat{});
  say(of(2), Failed{0, raised(0, Cause::kPeer, seconds(0))});
  say(of(3), Failed{0, raised(0, Cause::kPeer, seconds(0))});
  now += kPeerFailureGrace;
  EXPECT_EQ(given<Stop>(gang.on_tick(now)).size(), 4U);
  EXPECT_EQ(gang.culprit()->rank, 2);
}

TEST_F(AloneTest, WhatALostWorkerMeasuredLastCountsNoMore) {
  telemetry::RankSummary summary;
  summary.steps = 7;
  summary.samples_per_second = 100;
  summary.window[0] = summary.total[0] = 5;
  for (const int rank : {1, 2}) say(of(rank), Heartbeat{{summary}});
  gang.on_closed(of(1), now);
  const auto job = telemetry::fold(gang.ranks(), telemetry::Span::kWindow);
  EXPECT_EQ(job.samples_per_second, 100);
  EXPECT_EQ(job.steps, 7U);
  EXPECT_EQ(gang.ranks()[0].total[0], 5) << "the totals stay";
}

TEST_F(AloneTest, WaitsForTheBackOff) {
  auto patient = config(2);
  patient.backoff = seconds(3);
  kinds = {kServer, kWorker};
  gang = Gang(patient);
  join(0);
  join(1);
  say(of(1), Failed{0, killed(0)});
  EXPECT_TRUE(say(of(1), Stopped{0}).empty());
  now += seconds(2);
  EXPECT_TRUE(given<Start>(gang.on_tick(now)).empty());
  now += seconds(1);
  EXPECT_EQ(given<Start>(gang.on_tick(now)), std::vector<ConnectionId>{of(1)});
  now += seconds(1);
  EXPECT_TRUE(given<Start>(gang.on_tick(now)).empty());
}

TEST_F(AloneTest, ALostServerIsTheCauseOfAWorkersLostConnection) {
  EXPECT_TRUE(say(of(1), Failed{0, raised(0, Cause::kPeer, seconds(1))}).empty());
  EXPECT_EQ(given<Stop>(say(of(0), Failed{0, killed(0)})).size(), 4U);
  EXPECT_EQ(gang.culprit()->rank, 4);
  for (int rank = 0; rank < 4; ++rank) say(of(rank), Stopped{0});
  EXPECT_EQ(gang.restarts(), 1) << "one failure";
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  now += seconds(5);
  for (int rank = 0; rank < 4; ++rank) say(of(rank), Heartbeat{});
  EXPECT_TRUE(given<Stop>(gang.on_tick(now)).empty());
}

TEST_F(AloneTest, AServerThatAlsoLostAConnectionMakesItOneFailureOfTheGang) {
  say(of(1), Failed{0, raised(0, Cause::kPeer, seconds(1))});
  now += seconds(1);
  say(of(0), Failed{0, raised(0, Cause::kPeer, seconds(0))});
  now += seconds(2);
  EXPECT_TRUE(given<Stop>(gang.on_tick(now)).empty());
  now += seconds(1);
  EXPECT_EQ(given<Stop>(gang.on_tick(now)).size(), 4U);
  for (int rank = 0; rank < 4; ++rank) say(of(rank), Stopping{0});
  EXPECT_EQ(gang.restarts(), 1);
}

TEST_F(AloneTest, AWorkerThatLostNobodysConnectionIsStoppedAfterAWhile) {
  say(of(1), Failed{0, raised(0, Cause::kPeer, seconds(1))});
  now += kPeerFailureGrace;
  EXPECT_EQ(given<Stop>(gang.on_tick(now)), std::vector<ConnectionId>{of(1)});
  EXPECT_EQ(gang.restarts(), 1);
}

TEST_F(AloneTest, TheOthersGoOnWithoutALostWorkerWhichGetsThePresentTable) {
  const auto loss = gang.on_closed(of(1), now);
  EXPECT_TRUE(given<Stop>(loss).empty());
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  EXPECT_EQ(gang.missing(), std::vector<int>{1});
  EXPECT_EQ(gang.restarts(), 0);
  say(of(2), Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kRunning) << "the lost one is waited for";
  const int version = gang.table_version();
  Hello back = hello(1, 1, 1);
  back.node.address = "10.0.7.7";
  const auto start = say(of(1, 1), back);
  EXPECT_EQ(given<Start>(start), std::vector<ConnectionId>{of(1, 1)});
  EXPECT_EQ(sent<Start>(start, of(1, 1))[0].attempt, 0) << "whatever it was seeded with";
  EXPECT_EQ(tables(start), std::vector<ConnectionId>{of(1, 1)});
  EXPECT_GT(gang.table_version(), version);
  EXPECT_EQ(gang.table().nodes[1].address, "10.0.7.7");
  EXPECT_EQ(gang.table().nodes[1].incarnation, 1);
  EXPECT_EQ(gang.table().nodes[1].first_rank, 0);
  EXPECT_EQ(gang.table().master_address, "10.0.7.7");
  say(of(1, 1), Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kSucceeded);
}

TEST_F(AloneTest, ANumberThatAMemberHasSeenIsNotUsedAgain) {
  gang.on_closed(of(1), now);
  join(1, 1, 7);
  EXPECT_EQ(gang.attempt(), 0);
  say(of(0), Failed{0, killed(0)});
  EXPECT_EQ(gang.attempt(), 7);
}

TEST_F(AloneTest, ALostEvaluatorStopsNobody) {
  EXPECT_TRUE(given<Stop>(gang.on_closed(of(3), now)).empty());
  EXPECT_EQ(given<Start>(join(3, 1)), std::vector<ConnectionId>{of(3, 1)});
}

TEST_F(AloneTest, ALostServerStopsAllAndWaitsAlsoForAWorkerThatStopsAlone) {
  say(of(1), Failed{0, killed(0)});
  EXPECT_EQ(given<Stop>(gang.on_closed(of(0), now)).size(), 3U);
  join(0, 1);
  say(of(2), Stopped{0});
  EXPECT_TRUE(given<Start>(say(of(3), Stopped{0})).empty());
  const auto start = say(of(1), Stopped{0});
  EXPECT_EQ(given<Start>(start).size(), 4U);
  EXPECT_EQ(sent<Start>(start, of(1))[0].attempt, 1);
  EXPECT_EQ(gang.restarts(), 1);
}

TEST_F(AloneTest, AServerThatLostALostWorkerSpendsNoRestart) {
  say(of(0), Failed{0, raised(0, Cause::kPeer, seconds(0))});
  EXPECT_EQ(given<Stop>(gang.on_closed(of(1), now)).size(), 3U) << "the server has ended";
  EXPECT_EQ(gang.restarts(), 0);
}

TEST_F(AloneTest, AWorkerThatComesBackWithOtherProcessesRestartsTheGang) {
  gang.on_closed(of(1), now);
  Hello other = hello(1, 1);
  other.node.processes = 3;
  EXPECT_EQ(given<Stop>(say(of(1, 1), other)).size(), 3U);
  EXPECT_EQ(gang.phase(), GangPhase::kRestarting);
}

TEST_F(AloneTest, AWorkerLostBeforeItStartedHoldsUpTheNextStageUntilItIsBack) {
  gather_roles({kServer, kWorker, kEvaluator}, false, {0, 0, 1});
  say(of(0), Started{0});
  gang.on_closed(of(1), now);
  const auto start = join(1, 1);
  ASSERT_EQ(sent<Start>(start, of(1, 1)).size(), 1U);
  EXPECT_EQ(told(say(of(1, 1), Started{0})), std::vector<ConnectionId>{of(2)});
  gang.on_closed(of(1, 1), now);
  EXPECT_EQ(sent<Start>(join(1, 2), of(1, 2)).at(0).stage, 1);
  EXPECT_TRUE(told(say(of(1, 2), Started{0})).empty()) << "it was counted";
}

TEST_F(AloneTest, WorkersThatASchedulerCountsRestartTogether) {
  gather_roles({kServer, kWorker, kWorker, RoleKind::kScheduler});
  EXPECT_EQ(given<Stop>(say(of(1), Failed{0, killed(1)})).size(), 4U);
}

TEST_F(AloneTest, ACoordinatorDoesNotFailAlone) {
  gather_roles({kServer, RoleKind::kCoordinator, kWorker});
  EXPECT_EQ(given<Stop>(gang.on_closed(of(1), now)).size(), 2U);
}

}  // namespace
}  // namespace paceline::rendezvous
