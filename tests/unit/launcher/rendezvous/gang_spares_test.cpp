// SPDX-License-Identifier: Apache-2.0
// Members that stand by for lost ones.
#include "tests/unit/launcher/rendezvous/gang_fixture.hpp"

namespace paceline::rendezvous {
namespace {

using std::chrono::seconds;

/// Three places and two spares. Member n has connection n + 1.
struct SparesTest : GangTest {
  SparesTest() {
    auto settings = config(3);
    settings.spares = 2;
    gang = Gang(settings);
  }

  GangActions join(int rank, int incarnation = 0) {
    return say(of(rank, incarnation), hello(rank, incarnation));
  }

  static ConnectionId of(int rank, int incarnation = 0) {
    return static_cast<ConnectionId>(rank + 100 * incarnation) + 1;
  }

  void gather_all() {
    for (const int rank : {3, 0, 1, 4, 2}) join(rank);
    ASSERT_EQ(gang.phase(), GangPhase::kRunning);
  }

  GangActions lose(int rank, int incarnation = 0) {
    return gang.on_closed(of(rank, incarnation), now);
  }

  /// These stop their ranks after Stop; the answer of the last one may start the next attempt.
  GangActions stopped(int attempt, const std::vector<ConnectionId>& members) {
    GangActions last;
    for (const ConnectionId id : members) {
      say(id, Stopping{attempt});
      last = say(id, Stopped{attempt});
    }
    return last;
  }

  std::vector<std::string> pods() const {
    std::vector<std::string> names;
    for (const Node& node : gang.table().nodes) names.push_back(node.pod_name);
    return names;
  }

  using Pods = std::vector<std::string>;
};

TEST_F(SparesTest, StandByUntilTheyAreNeeded) {
  EXPECT_EQ(sent<StandBy>(join(3), of(3)).size(), 1U);
  join(0);
  join(1);
  join(4);
  EXPECT_EQ(gang.phase(), GangPhase::kGathering) << "two spares are no replacement for a slow pod";
  const auto start = join(2);
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  EXPECT_TRUE(sent<Start>(start, of(3)).empty());
  EXPECT_EQ(sent<Start>(start, of(2)).at(0).node_rank, -1);
  EXPECT_EQ(gang.table().world_size, 6);
  EXPECT_EQ(pods(), (Pods{"pod-0", "pod-1", "pod-2"}));
  EXPECT_EQ(gang.gathered(), 3);
}

TEST_F(SparesTest, OneTakesThePlaceOfALostMemberAtOnce) {
  gather_all();
  const auto lost = lose(1);
  EXPECT_NE(lines(lost).find("pod-3 takes the place of node rank 1"), std::string::npos)
      << lines(lost);
  EXPECT_EQ(sent<Stop>(lost, of(2)).size(), 1U);
  EXPECT_TRUE(sent<Stop>(lost, of(3)).empty()) << "it has no ranks to stop";
  const auto start = stopped(0, {of(0), of(2)});
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  EXPECT_EQ(gang.attempt(), 1);
  EXPECT_EQ(gang.restarts(), 0) << "a lost member costs none here";
  EXPECT_EQ(sent<Start>(start, of(3)).at(0).node_rank, 1);
  EXPECT_EQ(sent<Start>(start, of(2)).at(0).node_rank, -1);
  EXPECT_EQ(tables(start).size(), 3U);
  EXPECT_EQ(pods(), (Pods{"pod-0", "pod-3", "pod-2"}));
  EXPECT_EQ(gang.table().nodes[1].node_rank, 1);
  EXPECT_EQ(gang.missing(), std::vector<int>{1}) << "the pod, whose place is taken";
}

TEST_F(SparesTest, TheNextPodOfALostMemberStandsByInItsTurn) {
  gather_all();
  lose(1);
  stopped(0, {of(0), of(2)});
  EXPECT_EQ(sent<StandBy>(join(1, 1), of(1, 1)).size(), 1U);
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  EXPECT_TRUE(gang.missing().empty());
  // The second spare comes first, then the pod that came back.
  lose(3);
  stopped(1, {of(0), of(2)});
  EXPECT_EQ(pods()[1], "pod-1") << "its own place is free again";
  lose(2);
  stopped(2, {of(0), of(1, 1)});
  EXPECT_EQ(pods(), (Pods{"pod-0", "pod-1", "pod-4"}));
}

TEST_F(SparesTest, TheNearestInRankTakesThePlace) {
  auto settings = config(6);
  settings.spares = 2;
  gang = Gang(settings);
  for (int rank = 0; rank < 8; ++rank) join(rank);
  lose(1);
  stopped(0, {of(0), of(2), of(3), of(4), of(5)});
  join(1, 1);
  lose(5);
  stopped(1, {of(0), of(6), of(2), of(3), of(4)});
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  EXPECT_EQ(pods(), (Pods{"pod-0", "pod-6", "pod-2", "pod-3", "pod-4", "pod-7"}));
}

TEST_F(SparesTest, TakeNoPlaceWhoseRanksHaveNotStopped) {
  gather_all();
  const auto leaves = say(of(1), Leave{0});
  EXPECT_EQ(sent<Stop>(leaves, of(2)).size(), 1U) << "the others lose no time";
  stopped(0, {of(0), of(2)});
  EXPECT_EQ(gang.phase(), GangPhase::kRestarting);
  EXPECT_EQ(gang.gathered(), 3) << "the place is not vacant yet";
  lose(1);
  gang.on_tick(now);
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  EXPECT_EQ(pods(), (Pods{"pod-0", "pod-3", "pod-2"}));
  EXPECT_EQ(gang.attempt(), 1);
}

TEST_F(SparesTest, ARuleThatReplacesANodeSparesTheStandIn) {
  auto settings = config(3);
  settings.spares = 1;
  settings.rules = {{.action = failure::Action::kReplaceNode, .signals = {9}}};
  gang = Gang(settings);
  for (const int rank : {0, 1, 2, 3}) join(rank);
  say(of(1), Failed{0, killed(0)});
  say(of(1), Stopping{0});
  lose(1);
  say(of(0), Stopping{0});
  const auto last = say(of(2), Stopping{0});
  EXPECT_TRUE(sent<Stop>(last, of(3)).empty());
  EXPECT_FALSE(closes(last, of(3)));
}

TEST_F(SparesTest, WithoutOneLeftTheGangWaits) {
  gather_all();
  lose(3);
  lose(4);
  lose(1);
  stopped(0, {of(0), of(2)});
  EXPECT_EQ(gang.phase(), GangPhase::kRestarting);
  EXPECT_EQ(gang.gathered(), 2);
  const auto start = join(4, 1);
  EXPECT_EQ(gang.phase(), GangPhase::kRunning) << "whichever pod comes first";
  EXPECT_EQ(sent<Start>(start, of(4, 1)).at(0).node_rank, 1);
}

TEST_F(SparesTest, ASilentMemberIsReplacedSoonerThanItWouldBeWaitedFor) {
  gather_all();
  static_assert(kHeartbeatTimeoutWithSpares < kHeartbeatTimeout);
  now += kHeartbeatTimeoutWithSpares + seconds(1);
  for (const int rank : {0, 1, 3, 4}) say(of(rank), Heartbeat{});
  const auto lost = gang.on_tick(now);
  EXPECT_TRUE(closes(lost, of(2)));
  EXPECT_NE(lines(lost).find("pod-3 takes the place of node rank 2"), std::string::npos);
}

TEST_F(SparesTest, APlaceThatNobodyComesToIsTakenAfterAWhile) {
  for (const int rank : {0, 1, 3, 4}) join(rank);
  now += kSpareWait - seconds(1);
  for (const int rank : {0, 1, 3, 4}) say(of(rank), Heartbeat{});
  gang.on_tick(now);
  EXPECT_EQ(gang.phase(), GangPhase::kGathering);
  now += seconds(1);
  const auto start = gang.on_tick(now);
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  EXPECT_EQ(sent<Start>(start, of(3)).at(0).node_rank, 2);
  EXPECT_EQ(sent<StandBy>(join(2), of(2)).size(), 1U);
}

TEST_F(SparesTest, AMemberThatConnectsAnewStandsByIfASpareWasFaster) {
  gather_all();
  const auto again = say(77, hello(2));
  EXPECT_TRUE(closes(again, of(2)));
  EXPECT_EQ(sent<StandBy>(again, 77).size(), 1U);
  stopped(0, {of(0), of(1)});
  EXPECT_EQ(pods()[2], "pod-3");
}

TEST_F(SparesTest, TheyTakeNoPlaceOfAnotherRole) {
  auto settings = config(3);
  settings.spares = 1;
  gang = Gang(settings);
  // Node rank 1 is an evaluator; the workers are node ranks 2 and, as a spare, 3.
  const auto role = [&](int rank, contract::RoleKind kind, int index) {
    Hello value = hello(rank);
    value.node.kind = kind;
    value.node.replica_index = index;
    return say(of(rank), value);
  };
  role(0, contract::RoleKind::kCoordinator, 0);
  role(1, contract::RoleKind::kEvaluator, 0);
  role(2, contract::RoleKind::kWorker, 0);
  role(3, contract::RoleKind::kWorker, 1);
  ASSERT_EQ(gang.phase(), GangPhase::kRunning);
  lose(1);
  gang.on_tick(now);
  EXPECT_EQ(gang.phase(), GangPhase::kRunning) << "the others go on without the evaluator";
  lose(2);
  stopped(0, {of(0)});
  EXPECT_EQ(gang.gathered(), 2) << "the spare is the worker now, the evaluator is awaited";
  EXPECT_EQ(gang.phase(), GangPhase::kRestarting);
}

TEST_F(SparesTest, HearTheEndOfTheJob) {
  gather_all();
  lose(1);
  stopped(0, {of(0), of(2)});
  say(of(0), Done{1});
  say(of(2), Done{1});
  const auto end = say(of(3), Done{1});
  EXPECT_EQ(gang.phase(), GangPhase::kSucceeded);
  for (const int rank : {0, 2, 3, 4}) {
    EXPECT_EQ(sent<Finish>(end, of(rank)).size(), 1U) << rank;
  }
}

TEST_F(SparesTest, SayNothingThatCountsWhileTheyStandBy) {
  gather_all();
  EXPECT_TRUE(say(of(3), Failed{0, killed(0)}).empty());
  EXPECT_TRUE(say(of(3), Done{0}).empty());
  EXPECT_TRUE(say(of(3), Heartbeat{{telemetry::RankSummary{}}}).empty());
  EXPECT_TRUE(gang.ranks().empty());
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  EXPECT_FALSE(lose(4).empty());
  EXPECT_EQ(gang.phase(), GangPhase::kRunning) << "the loss of one concerns nobody";
}

TEST_F(SparesTest, HearWhatTheirRoleImports) {
  gather_all();
  const auto told = say(of(0), Imports{"torch"});
  for (const int rank : {3, 4}) {
    EXPECT_EQ(sent<Imports>(told, of(rank)).at(0).text, "torch");
  }
  EXPECT_TRUE(sent<Imports>(told, of(1)).empty());
  EXPECT_EQ(tables(told), (std::vector<ConnectionId>{of(3), of(4)}));
  EXPECT_TRUE(say(of(0), Imports{"numpy,torch"}).empty()) << "in the next attempt, in other order";
  lose(1);
  stopped(0, {of(0), of(2)});
  const auto later = join(1, 1);
  EXPECT_EQ(sent<Imports>(later, of(1, 1)).size(), 1U) << "who comes later hears it, too";
  EXPECT_EQ(tables(later), std::vector<ConnectionId>{of(1, 1)});
}

TEST_F(SparesTest, HearNothingOfAnotherRolesImports) {
  for (const int rank : {0, 1, 2, 3, 4}) {
    Hello value = hello(rank);
    if (rank == 0) value.node.role = "coordinator";
    say(of(rank), value);
  }
  ASSERT_EQ(gang.phase(), GangPhase::kRunning);
  EXPECT_TRUE(say(of(0), Imports{"ray"}).empty());
  EXPECT_TRUE(say(of(3), Imports{"torch"}).empty()) << "a spare tells nothing";
  EXPECT_EQ(sent<Imports>(say(of(1), Imports{"torch"}), of(3)).size(), 1U);
}

TEST_F(SparesTest, ARankTheGangDoesNotHaveIsRefused) {
  EXPECT_EQ(sent<Refused>(join(5), of(5)).size(), 1U);
}

}  // namespace
}  // namespace paceline::rendezvous
