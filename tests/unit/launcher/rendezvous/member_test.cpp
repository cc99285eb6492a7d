// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/member.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "launcher/rendezvous/frame.hpp"

namespace paceline::rendezvous {
namespace {

using std::chrono::seconds;

struct MemberTest : ::testing::Test {
  MemberTest() : member(config(), now) { member.begin(now); }

  static MemberConfig config(bool rank_zero = false) {
    MemberConfig value;
    value.hello.node = {0, "worker", 0, 0, "pod-0", "10.0.0.1", "n", 2, 0};
    value.startup_timeout = seconds(30);
    value.rank_zero_decides = rank_zero;
    return value;
  }

  static RankTable table(int attempt = 0, int processes = 2) {
    Node node = config().hello.node;
    node.processes = processes;
    return make_rank_table(attempt, 29500, {node});
  }

  /// The server's start and its table, which follows at once.
  MemberActions start(int attempt = 0, int processes = 2, int restarts = 0) {
    auto actions = member.on_message(Start{attempt, restarts, ""}, now);
    const auto more = member.on_message(Table{table(attempt, processes)}, now);
    actions.insert(actions.end(), more.begin(), more.end());
    return actions;
  }

  void run(int attempt = 0) {
    member.on_connected(now);
    start(attempt);
  }

  /// As a spare that was started with this node rank.
  void stand_by(int node_rank) {
    MemberConfig spare = config();
    spare.hello.node.node_rank = node_rank;
    spare.has_spares = true;
    member = Member(spare, now);
    member.begin(now);
    member.on_connected(now);
    member.on_message(StandBy{}, now);
  }

  template <typename T>
  static const T* find(const MemberActions& actions) {
    for (const auto& action : actions) {
      if (const auto* found = std::get_if<T>(&action)) return found;
    }
    return nullptr;
  }

  template <typename T>
  static const T* said(const MemberActions& actions) {
    for (const auto& action : actions) {
      const auto* send = std::get_if<SendMessage>(&action);
      if (send != nullptr && std::holds_alternative<T>(send->message))
        return &std::get<T>(send->message);
    }
    return nullptr;
  }

  SteadyTime now{std::chrono::hours(1)};
  Member member;
};

TEST_F(MemberTest, SaysHelloAndStartsWhenTold) {
  EXPECT_NE(said<Hello>(member.on_connected(now)), nullptr);
  EXPECT_NE(find<StartRanks>(start()), nullptr);
  EXPECT_TRUE(member.running());
  EXPECT_EQ(find<StartRanks>(start()), nullptr) << "a second start is not obeyed";
}

TEST_F(MemberTest, AStartThatDoesNotFitIsNotObeyed) {
  member.on_connected(now);
  EXPECT_EQ(find<StartRanks>(start(0, 3)), nullptr);
  member.on_message(Start{}, now);
  EXPECT_EQ(find<StartRanks>(member.on_message(Table{}, now)), nullptr);
}

TEST_F(MemberTest, FetchesTheTableWhereItIsToldAndStartsWithIt) {
  member.on_connected(now);
  const auto actions = member.on_message(Start{3, 1, "10.0.0.9:4000"}, now);
  ASSERT_NE(find<FetchTable>(actions), nullptr);
  EXPECT_EQ(find<FetchTable>(actions)->from, "10.0.0.9:4000");
  EXPECT_EQ(find<StartRanks>(actions), nullptr);
  EXPECT_EQ(find<StartRanks>(member.on_table(table(2))), nullptr) << "of an earlier attempt";
  const auto begun = member.on_table(table(3));
  ASSERT_NE(find<StartRanks>(begun), nullptr);
  EXPECT_EQ(find<StartRanks>(begun)->restarts, 1);
}

TEST_F(MemberTest, AsksTheServerForATableThatItCannotFetch) {
  member.on_connected(now);
  member.on_message(Start{3, 0, "10.0.0.9:4000"}, now);
  EXPECT_EQ(said<NeedTable>(member.on_no_table(2, "refused")), nullptr);
  const auto actions = member.on_no_table(3, "refused");
  ASSERT_NE(said<NeedTable>(actions), nullptr);
  EXPECT_EQ(said<NeedTable>(actions)->attempt, 3);
  EXPECT_NE(find<StartRanks>(member.on_message(Table{table(3)}, now)), nullptr);
}

TEST_F(MemberTest, AStopBeforeTheTableCameEndsTheStart) {
  member.on_connected(now);
  member.on_message(Start{3, 0, "10.0.0.9:4000"}, now);
  EXPECT_NE(said<Stopped>(member.on_message(Stop{3}, now)), nullptr);
  EXPECT_EQ(find<StartRanks>(member.on_table(table(3))), nullptr);
  EXPECT_TRUE(member.on_no_table(3, "late").empty());
}

TEST_F(MemberTest, KeepsTheTableUntilItsStageHasComeAndSaysThatItStarted) {
  auto later = config();
  later.hello.start_stage = 1;
  member = Member(later, now);
  member.begin(now);
  member.on_connected(now);
  member.on_message(Start{3, 0, "", 0, 2}, now);
  EXPECT_TRUE(member.on_message(Table{table(3)}, now).empty());
  EXPECT_EQ(find<StartRanks>(member.on_message(StartStage{2, 1}, now)), nullptr);
  const auto actions = member.on_message(StartStage{3, 1}, now);
  ASSERT_EQ(actions.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<StartRanks>(actions[0]));
  ASSERT_NE(said<Started>(actions), nullptr) << "a later stage waits for it";
  EXPECT_EQ(said<Started>(actions)->attempt, 3);
}

TEST_F(MemberTest, AStageThatComesBeforeTheTableIsRemembered) {
  auto later = config();
  later.hello.start_stage = 1;
  member = Member(later, now);
  member.begin(now);
  member.on_connected(now);
  member.on_message(Start{3, 0, "10.0.0.9:4000", 0, 1}, now);
  EXPECT_TRUE(member.on_message(StartStage{3, 1}, now).empty());
  const auto actions = member.on_table(table(3));
  EXPECT_NE(find<StartRanks>(actions), nullptr);
  EXPECT_EQ(said<Started>(actions), nullptr) << "nobody waits for the last stage";
}

TEST_F(MemberTest, AStopWhileItsStageHasNotComeEndsTheStart) {
  auto later = config();
  later.hello.start_stage = 1;
  member = Member(later, now);
  member.begin(now);
  member.on_connected(now);
  member.on_message(Start{3, 0, "", 0, 1}, now);
  member.on_message(Table{table(3)}, now);
  EXPECT_NE(said<Stopped>(member.on_message(Stop{3}, now)), nullptr);
  EXPECT_TRUE(member.on_message(StartStage{3, 1}, now).empty());
}

TEST_F(MemberTest, APauseOfThisLauncherOrAPartOfAMessageIsNoSilenceOfTheServer) {
  run();
  now += seconds(60);
  member.on_pause(seconds(60));
  EXPECT_EQ(find<DropServer>(member.on_tick(now)), nullptr);
  now += seconds(9);
  member.on_progress(now);
  now += seconds(9);
  EXPECT_EQ(find<DropServer>(member.on_tick(now)), nullptr);
}

TEST_F(MemberTest, IsDoneWhenAllItsRanksAre) {
  run();
  EXPECT_EQ(said<Done>(member.on_rank_exit(0, std::nullopt)), nullptr);
  const auto actions = member.on_rank_exit(1, std::nullopt);
  EXPECT_NE(said<Done>(actions), nullptr);
  EXPECT_NE(find<SendSummary>(actions), nullptr) << "the last numbers go before it";
  EXPECT_EQ(find<Exit>(actions), nullptr) << "the server has the last word";
}

TEST_F(MemberTest, RanksThatStillRunLongAfterAnotherEndedAreToldOfOnce) {
  run();
  member.on_rank_exit(0, std::nullopt);
  const auto later = [&](std::chrono::seconds time) {
    now += time;
    member.on_message(Heartbeat{}, now);
    return find<LogLine>(member.on_tick(now)) != nullptr;
  };
  EXPECT_FALSE(later(seconds(0)));
  EXPECT_FALSE(later(kStragglerWarning - seconds(1)));
  now += seconds(1);
  member.on_message(Heartbeat{}, now);
  const auto told = member.on_tick(now);
  ASSERT_NE(find<LogLine>(told), nullptr);
  EXPECT_NE(find<LogLine>(told)->text.find("1 of 2 ranks here still run 60 s"), std::string::npos);
  EXPECT_FALSE(later(kStragglerWarning));
  EXPECT_NE(said<Done>(member.on_rank_exit(1, std::nullopt)), nullptr) << "it was only told of";
}

TEST_F(MemberTest, AKeptLauncherIsOneChildWhateverItStarts) {
  auto kept = config();
  kept.children = 1;
  member = Member(kept, now);
  member.begin(now);
  run();
  EXPECT_NE(said<Done>(member.on_rank_exit(0, std::nullopt)), nullptr);
}

TEST_F(MemberTest, RankZeroIsEnoughWhereThePolicySaysSo) {
  member = Member(config(true), now);
  member.begin(now);
  run();
  EXPECT_EQ(said<Done>(member.on_rank_exit(1, std::nullopt)), nullptr);
  EXPECT_NE(said<Done>(member.on_rank_exit(0, std::nullopt)), nullptr);
}

TEST_F(MemberTest, RankZeroIsThatOfTheTrainingAndNotTheServersNode) {
  auto server = config(true);
  server.hello.node.kind = contract::RoleKind::kParameterServer;
  member = Member(server, now);
  member.begin(now);
  member.on_connected(now);
  Node worker = config().hello.node;
  worker.node_rank = 1;
  member.on_message(Start{}, now);
  member.on_message(Table{make_rank_table(0, 29500, {server.hello.node, worker})}, now);
  ASSERT_TRUE(member.running());
  EXPECT_EQ(said<Done>(member.on_rank_exit(0, std::nullopt)), nullptr);
  EXPECT_NE(said<Done>(member.on_rank_exit(1, std::nullopt)), nullptr) << "all of its processes";
}

TEST_F(MemberTest, AServerThatOutlivesAnotherIsNoStraggler) {
  auto server = config();
  server.hello.node.kind = contract::RoleKind::kParameterServer;
  member = Member(server, now);
  member.begin(now);
  member.on_connected(now);
  member.on_message(Start{}, now);
  member.on_message(Table{make_rank_table(0, 29500, {server.hello.node})}, now);
  member.on_rank_exit(0, std::nullopt);
  for (int second = 0; second < 70; ++second) {
    now += seconds(1);
    member.on_message(Heartbeat{}, now);
    EXPECT_EQ(find<LogLine>(member.on_tick(now)), nullptr);
  }
}

TEST_F(MemberTest, ReportsEveryFailureAndWaitsForTheServer) {
  run(4);
  const auto actions = member.on_rank_exit(1, Failure{1, 3, std::nullopt, false, "Exit", {}});
  ASSERT_NE(said<Failed>(actions), nullptr);
  EXPECT_EQ(said<Failed>(actions)->attempt, 4);
  EXPECT_EQ(find<StopRanks>(actions), nullptr);
  EXPECT_NE(said<Failed>(member.on_rank_exit(0, Failure{})), nullptr)
      << "the first may have lost this one";
  EXPECT_NE(find<StopRanks>(member.on_message(Stop{4}, now)), nullptr);
  EXPECT_NE(said<Stopped>(member.on_all_stopped(now)), nullptr);
  EXPECT_NE(find<StartRanks>(start(5)), nullptr);
}

TEST_F(MemberTest, TellsWhatHasFailedHereBeforeItStopsItsRanks) {
  run(4);
  const auto actions = member.on_message(Stop{4}, now);
  ASSERT_EQ(actions.size(), 3U);
  EXPECT_EQ(std::get<SendFailure>(actions[0]).attempt, 4);
  EXPECT_EQ(said<Stopping>(actions)->attempt, 4);
  EXPECT_TRUE(std::holds_alternative<StopRanks>(actions[2]));
}

TEST_F(MemberTest, AStopOfAnotherAttemptStopsNothing) {
  run(4);
  EXPECT_EQ(find<StopRanks>(member.on_message(Stop{3}, now)), nullptr);
  EXPECT_TRUE(member.running());
}

TEST_F(MemberTest, StopsItsRanksWhenTheServerIsLostAndOnlyThenSaysHelloAgain) {
  run();
  EXPECT_NE(find<StopRanks>(member.on_disconnected("reset", now)), nullptr);
  now += seconds(1);
  EXPECT_EQ(find<ConnectServer>(member.on_tick(now)), nullptr) << "its ranks are still alive";
  EXPECT_NE(find<ConnectServer>(member.on_all_stopped(now)), nullptr);
  EXPECT_NE(said<Hello>(member.on_connected(now)), nullptr);
}

TEST_F(MemberTest, WhatTheServerCountedIsItsSeedForTheNextServer) {
  member.on_connected(now);
  start(7, 2, 3);
  member.on_disconnected("reset", now);
  now += seconds(1);
  member.on_all_stopped(now);
  const auto actions = member.on_connected(now);
  ASSERT_NE(said<Hello>(actions), nullptr);
  EXPECT_EQ(said<Hello>(actions)->attempt, 8)
      << "7 has run: a server that knows less must not use it again";
  EXPECT_EQ(said<Hello>(actions)->restarts, 3);
}

TEST_F(MemberTest, ASilentServerIsALostServer) {
  run();
  now += seconds(11);
  const auto actions = member.on_tick(now);
  EXPECT_NE(find<DropServer>(actions), nullptr);
  EXPECT_NE(find<StopRanks>(actions), nullptr);
}

TEST_F(MemberTest, TriesAgainLaterAndGivesUpAfterTheStartupTimeout) {
  member.on_disconnected("refused", now);
  EXPECT_EQ(find<ConnectServer>(member.on_tick(now)), nullptr);
  now += seconds(1);
  EXPECT_NE(find<ConnectServer>(member.on_tick(now)), nullptr);
  member.on_disconnected("refused", now);
  now += seconds(30);
  const auto actions = member.on_tick(now);
  ASSERT_NE(find<Exit>(actions), nullptr);
  EXPECT_EQ(find<Exit>(actions)->outcome.end, End::kRendezvousTimeout);
  EXPECT_NE(find<Exit>(actions)->outcome.message.find("refused"), std::string::npos);
}

TEST_F(MemberTest, ARunningGangNeverTimesOut) {
  run();
  for (int i = 0; i < 100; ++i) {
    now += seconds(5);
    member.on_message(Heartbeat{}, now);
    EXPECT_EQ(find<Exit>(member.on_tick(now)), nullptr);
  }
}

TEST_F(MemberTest, ASpareWaitsForAsLongAsItTakesAndStartsInThePlaceThatItIsTold) {
  stand_by(4);
  for (int hour = 0; hour < 3; ++hour) {
    now += seconds(3600);
    member.on_progress(now);
    EXPECT_EQ(find<Exit>(member.on_tick(now)), nullptr);
  }
  member.on_message(Start{3, 0, "", 0, 0, 0}, now);
  const auto actions = member.on_message(Table{table(3)}, now);
  ASSERT_NE(find<StartRanks>(actions), nullptr);
  EXPECT_EQ(find<StartRanks>(actions)->node_rank, 0);
}

TEST_F(MemberTest, ASpareIsReadyForAPlaceBeforeItHasOne) {
  stand_by(2);
  RankTable two = table(3);
  two.nodes.push_back(two.nodes.front());
  EXPECT_EQ(find<PrepareRanks>(member.on_message(Table{two}, now)), nullptr) << "for which ranks?";
  member.on_message(Imports{"torch"}, now);
  const auto actions = member.on_message(Table{two}, now);
  ASSERT_NE(find<PrepareRanks>(actions), nullptr);
  EXPECT_EQ(find<PrepareRanks>(actions)->imports, "torch");
  EXPECT_EQ(find<PrepareRanks>(actions)->table.nodes.size(), 2U);
  EXPECT_EQ(find<StartRanks>(actions), nullptr);
  member.on_message(Imports{"torch"}, now);
  two.nodes.back().processes = 5;
  EXPECT_EQ(find<PrepareRanks>(member.on_message(Table{two}, now)), nullptr) << "of another size";
  EXPECT_EQ(find<PrepareRanks>(member.on_message(Table{table(3)}, now)), nullptr)
      << "node rank 0 is never vacant";
}

TEST_F(MemberTest, TheFirstOfARoleTellsWhatItsRanksImportWhereThereAreSpares) {
  run();
  EXPECT_EQ(said<Imports>(member.on_imports("torch")), nullptr) << "nobody stands by";
  MemberConfig first = config();
  first.has_spares = true;
  member = Member(first, now);
  member.begin(now);
  run();
  ASSERT_NE(said<Imports>(member.on_imports("torch")), nullptr);
  const auto long_one = member.on_imports(std::string(kMemberLimit, 'x'));
  EXPECT_EQ(said<Imports>(long_one), nullptr);
  EXPECT_NE(find<LogLine>(long_one), nullptr);
  first.hello.node.replica_index = 1;
  member = Member(first, now);
  member.begin(now);
  run();
  EXPECT_TRUE(member.on_imports("torch").empty());
}

TEST_F(MemberTest, WithSparesItsPlaceIsItsOwnUntilItsRanksHaveStopped) {
  MemberConfig spared = config();
  spared.has_spares = true;
  member = Member(spared, now);
  member.begin(now);
  run();
  const auto leaves = member.on_terminate("SIGTERM", false, now);
  ASSERT_NE(said<Leave>(leaves), nullptr);
  EXPECT_NE(find<StopRanks>(leaves), nullptr);
  EXPECT_EQ(find<DropServer>(leaves), nullptr);
  now += kHeartbeatInterval;
  EXPECT_NE(find<SendSummary>(member.on_tick(now)), nullptr) << "it is not silent meanwhile";
  const auto ends = member.on_all_stopped(now);
  EXPECT_NE(find<DropServer>(ends), nullptr);
  ASSERT_NE(find<Exit>(ends), nullptr);
  EXPECT_EQ(find<Exit>(ends)->outcome.end, End::kTerminated);
}

TEST_F(MemberTest, ASpareThatHasLostTheServerWaitsForItNoLongerThanOthers) {
  member.on_connected(now);
  member.on_message(StandBy{}, now);
  now += seconds(3600);
  member.on_disconnected("gone", now);
  EXPECT_EQ(find<Exit>(member.on_tick(now)), nullptr);
  now += seconds(31);
  ASSERT_NE(find<Exit>(member.on_tick(now)), nullptr);
}

TEST_F(MemberTest, EndsWithTheServersVerdictOnceItsRanksAreGone) {
  run();
  const auto actions = member.on_message(Finish{Verdict::kFailed, 0, 2, "why", std::nullopt}, now);
  EXPECT_NE(find<StopRanks>(actions), nullptr);
  EXPECT_EQ(find<Exit>(actions), nullptr);
  const auto last = member.on_all_stopped(now);
  ASSERT_NE(find<Exit>(last), nullptr);
  EXPECT_EQ(find<Exit>(last)->outcome.end, End::kFailed);
  EXPECT_EQ(find<Exit>(last)->outcome.restarts, 2);
}

TEST_F(MemberTest, EndsForGoodWhereItIsToldToLeave) {
  run();
  const auto stop = member.on_message(Stop{0}, now);
  EXPECT_NE(find<StopRanks>(stop), nullptr);
  EXPECT_NE(find<DropServer>(member.on_message(Stop{0, "rank 1 hung"}, now)), nullptr);
  const auto last = member.on_all_stopped(now);
  ASSERT_NE(find<Exit>(last), nullptr);
  EXPECT_EQ(find<Exit>(last)->outcome.end, End::kReplaceNode);
  EXPECT_EQ(find<Exit>(last)->outcome.message, "rank 1 hung");
}

TEST_F(MemberTest, SigtermEndsItAndIsNotAFailure) {
  run();
  EXPECT_NE(find<StopRanks>(member.on_terminate("SIGTERM", false, now)), nullptr);
  EXPECT_TRUE(member.on_rank_exit(0, Failure{}).empty()) << "a rank that we end has not failed";
  EXPECT_EQ(find<Exit>(member.on_all_stopped(now))->outcome.end, End::kTerminated);
}

TEST_F(MemberTest, SigtermBeforeTheGangEndsItAtOnce) {
  EXPECT_EQ(find<Exit>(member.on_terminate("SIGTERM", true, now))->outcome.end, End::kTerminated);
}

TEST_F(MemberTest, SigtermWaitsUntilRanksHaveSavedAndTheirGraceGoesOn) {
  run();
  const auto asked = member.on_terminate("SIGTERM", true, now);
  EXPECT_EQ(find<StopRanks>(asked), nullptr);
  ASSERT_NE(said<Save>(asked), nullptr);
  EXPECT_EQ(said<Save>(asked)->word, SaveWord::kAsk);
  EXPECT_NE(find<HoldRanks>(member.on_message(Save{SaveWord::kHold, 0, -1, 0, 0}, now)), nullptr);
  const auto at = member.on_message(Save{SaveWord::kAt, 0, 8, 0, 0}, now);
  ASSERT_NE(find<SaveRanks>(at), nullptr);
  EXPECT_EQ(find<SaveRanks>(at)->step, 8);
  EXPECT_NE(said<Save>(member.on_saved(8, 2, 2)), nullptr);
  const auto asked_at = now;
  now += seconds(2);
  const auto ended = member.on_message(Save{SaveWord::kEnded, 0, 8, 0, 0}, now);
  ASSERT_NE(find<StopRanks>(ended), nullptr);
  EXPECT_EQ(find<StopRanks>(ended)->since, asked_at);
  const auto exited = member.on_all_stopped(now);
  ASSERT_NE(find<Exit>(exited), nullptr);
  EXPECT_EQ(find<Exit>(exited)->outcome.end, End::kTerminated);
  ASSERT_TRUE(find<Exit>(exited)->outcome.saved.has_value());
  EXPECT_EQ(find<Exit>(exited)->outcome.saved->step, 8);
}

TEST_F(MemberTest, AfterASaveOfAWarningRanksAreReleasedAndHaveTheirWholeGrace) {
  run();
  const auto held =
      member.on_message(Save{.word = SaveWord::kHold, .attempt = 0, .go_on = true}, now);
  ASSERT_NE(find<HoldRanks>(held), nullptr);
  EXPECT_TRUE(find<HoldRanks>(held)->go_on);
  const auto at =
      member.on_message(Save{.word = SaveWord::kAt, .attempt = 0, .step = 8, .go_on = true}, now);
  ASSERT_NE(find<SaveRanks>(at), nullptr);
  EXPECT_TRUE(find<SaveRanks>(at)->go_on);
  const auto told = member.on_saved(8, 2, 2, 1);
  ASSERT_NE(said<Save>(told), nullptr);
  EXPECT_EQ(said<Save>(told)->gone, 1);
  const auto ended = member.on_message(Save{SaveWord::kEnded, 0, 8, 0, 0}, now);
  EXPECT_NE(find<ReleaseRanks>(ended), nullptr);
  EXPECT_EQ(find<StopRanks>(ended), nullptr);
  const auto stopped = member.on_message(Stop{0}, now);
  ASSERT_NE(find<StopRanks>(stopped), nullptr);
  EXPECT_EQ(find<StopRanks>(stopped)->since, std::nullopt);
}

TEST_F(MemberTest, TheWaitForASaveEndsWithTheTimeTheServerARankAndASecondSignal) {
  const std::map<std::string, std::function<MemberActions(Member&)>> endings{
      {"time", [&](Member& m) { return m.on_tick(now + seconds(20)); }},
      {"server", [&](Member& m) { return m.on_disconnected("reset", now); }},
      {"stop", [&](Member& m) { return m.on_message(Stop{0}, now); }},
      {"rank", [&](Member& m) { return m.on_rank_exit(0, Failure{}); }},
      {"signal", [&](Member& m) { return m.on_terminate("SIGTERM", true, now); }}};
  for (const auto& [name, end] : endings) {
    auto settings = config();
    settings.longest_save = seconds(20);
    member = Member(settings, now);
    member.begin(now);
    run();
    EXPECT_EQ(find<StopRanks>(member.on_terminate("SIGTERM", true, now)), nullptr) << name;
    EXPECT_EQ(find<StopRanks>(member.on_tick(now + seconds(1))), nullptr) << name;
    EXPECT_NE(find<StopRanks>(end(member)), nullptr) << name;
    const auto exited = member.on_all_stopped(now);
    ASSERT_NE(find<Exit>(exited), nullptr) << name;
    EXPECT_EQ(find<Exit>(exited)->outcome.end, End::kTerminated) << name;
  }
}

TEST_F(MemberTest, AReplicaWithoutRanksKeepsNobodyFromSaving) {
  member.on_connected(now);
  const auto held = member.on_message(Save{SaveWord::kHold, 3, -1, 0, 0}, now);
  ASSERT_NE(said<Save>(held), nullptr);
  EXPECT_EQ(said<Save>(held)->word, SaveWord::kReached);
  EXPECT_EQ(said<Save>(held)->step, -1);
  const auto at = member.on_message(Save{SaveWord::kAt, 3, 9, 0, 0}, now);
  ASSERT_NE(said<Save>(at), nullptr);
  EXPECT_EQ(said<Save>(at)->word, SaveWord::kSaved);
  EXPECT_EQ(said<Save>(at)->ranks, 0);
}

TEST_F(MemberTest, ARefusalEndsIt) {
  member.on_connected(now);
  const auto actions = member.on_message(Refused{"wrong token"}, now);
  ASSERT_NE(find<Exit>(actions), nullptr);
  EXPECT_EQ(find<Exit>(actions)->outcome.end, End::kBadContract);
}

TEST_F(MemberTest, ARefusalByAnotherReleaseIsToldApart) {
  member.on_connected(now);
  const auto actions =
      member.on_message(Refused{"protocol 5 is not spoken here", kProtocol + 1}, now);
  ASSERT_NE(find<Exit>(actions), nullptr);
  EXPECT_EQ(find<Exit>(actions)->outcome.end, End::kOtherRelease);
}

}  // namespace
}  // namespace paceline::rendezvous
