// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/unit/launcher/rendezvous/gang_fixture.hpp"

namespace paceline::rendezvous {
namespace {

using std::chrono::seconds;

TEST_F(GangTest, NobodyStartsBeforeAllAreThere) {
  EXPECT_TRUE(sent<Start>(say(1, hello(0)), 1).empty());
  EXPECT_EQ(gang.phase(), GangPhase::kGathering);
  const auto actions = say(2, hello(1));
  ASSERT_EQ(sent<Start>(actions, 1).size(), 1U);
  EXPECT_EQ(sent<Start>(actions, 2).at(0).table_from, "");
  EXPECT_EQ(tables(actions), (std::vector<ConnectionId>{1, 2}));
  EXPECT_EQ(gang.table().world_size, 4);
  EXPECT_EQ(gang.table().nodes.at(1).first_rank, 2);
  EXPECT_EQ(gang.table().master_address, "10.0.0.0");
  EXPECT_EQ(gang.table().master_port, 29500);
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
}

TEST_F(GangTest, StrangersAreRefusedWithTheReason) {
  auto wrong_token = hello(0);
  wrong_token.token = "secreT";
  auto no_token = hello(0);
  no_token.token = "";
  auto other_job = hello(0);
  other_job.job_uid = "other";
  auto other_protocol = hello(0);
  other_protocol.protocol = 1;
  for (const Hello& stranger : {wrong_token, no_token, other_job, other_protocol, hello(2)}) {
    const auto actions = say(9, stranger);
    EXPECT_EQ(sent<Refused>(actions, 9).size(), 1U);
    EXPECT_TRUE(closes(actions, 9));
  }
  EXPECT_EQ(gang.gathered(), 0);
  EXPECT_TRUE(closes(say(9, Done{0}), 9)) << "no message counts before hello";
}

TEST_F(GangTest, TheFirstFailureRestartsAllInPlace) {
  gather();
  auto actions = say(2, Failed{0, killed(1)});
  EXPECT_EQ(sent<Stop>(actions, 1).size() + sent<Stop>(actions, 2).size(), 2U);
  EXPECT_EQ(gang.phase(), GangPhase::kRestarting);
  EXPECT_EQ(gang.culprit()->rank, 3);
  EXPECT_EQ(gang.culprit()->pod_name, "pod-1");
  now += std::chrono::milliseconds(1);
  say(1, Failed{0, killed(0)});  // the others fail because of the first
  EXPECT_EQ(gang.culprit()->rank, 3);
  EXPECT_TRUE(sent<Start>(say(1, Stopped{0}), 1).empty()) << "node 1 still has ranks alive";
  actions = say(2, Stopped{0});
  ASSERT_EQ(sent<Start>(actions, 1).size(), 1U);
  EXPECT_EQ(sent<Start>(actions, 1)[0].attempt, 1);
  EXPECT_EQ(gang.table().attempt, 1);
  EXPECT_EQ(gang.table().master_port, 29501);
  EXPECT_EQ(sent<Start>(actions, 1)[0].restarts, 1);
}

TEST_F(GangTest, ASpentBudgetEndsTheJobAndNamesTheCulprit) {
  gather();
  say(2, Failed{0, killed(1)});
  say(1, Stopped{0});
  say(2, Stopped{0});
  EXPECT_EQ(sent<Stop>(say(1, Failed{1, killed(0)}), 2).size(), 1U);
  const auto actions = settle(1);
  ASSERT_EQ(sent<Finish>(actions, 2).size(), 1U);
  const Finish finish = sent<Finish>(actions, 2)[0];
  EXPECT_EQ(finish.verdict, Verdict::kFailed);
  EXPECT_EQ(finish.attempt, 1);
  EXPECT_EQ(finish.restarts, 1);
  EXPECT_EQ(finish.culprit->rank, 0);
  EXPECT_EQ(finish.culprit->failure.last_lines.at(0), "last words");
  EXPECT_NE(finish.message.find("signal 9"), std::string::npos);
  EXPECT_TRUE(gang.finished());
}

TEST_F(GangTest, NamesTheRankThatFailedFirstWhereverItLivesAndNotTheOneThatEndedFirst) {
  gather();
  // Rank 0 has ended because it lost rank 3, whose exception is older and which has not ended yet.
  say(1, Failed{0, raised(0, Cause::kOwn, seconds(1))});
  say(2, Failed{0, raised(1, Cause::kOwn, seconds(2))});
  EXPECT_EQ(gang.culprit()->rank, 3);
  say(1, Failed{0, raised(0, Cause::kOwn, seconds(1))});
  settle(0);
  EXPECT_EQ(gang.culprit()->rank, 3);
  EXPECT_EQ(gang.restarts(), 1) << "one failure, whoever is named for it";
}

TEST_F(GangTest, ARankThatHasLostAnotherWaitsForThatOnesEnd) {
  gather();
  EXPECT_TRUE(sent<Stop>(say(1, Failed{0, raised(0, Cause::kPeer, seconds(5))}), 2).empty());
  EXPECT_TRUE(sent<Stop>(say(2, Failed{0, raised(0, Cause::kPeer, seconds(4))}), 2).empty());
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  EXPECT_EQ(sent<Stop>(say(2, Failed{0, raised(1, Cause::kOwn, seconds(1))}), 1).size(), 1U)
      << "at once";
  settle(0);
  EXPECT_EQ(gang.culprit()->rank, 3);
  EXPECT_EQ(gang.restarts(), 1);
}

TEST_F(GangTest, WhereAllHaveLostAnotherTheFirstIsNamedAndItIsSaid) {
  gather();
  say(1, Failed{0, raised(0, Cause::kPeer, seconds(5))});
  say(2, Failed{0, raised(0, Cause::kPeer, seconds(6))});
  now += kPeerFailureGrace - std::chrono::milliseconds(1);
  EXPECT_TRUE(sent<Stop>(gang.on_tick(now), 1).empty());
  now += std::chrono::milliseconds(1);
  EXPECT_EQ(sent<Stop>(gang.on_tick(now), 1).size(), 1U);
  std::string text;
  for (const auto& action : settle(0)) {
    if (const auto* line = std::get_if<LogLine>(&action)) text += line->text;
  }
  EXPECT_NE(text.find("rank 2 on pod-1 exited with code 1 after it had lost a connection, and no "
                      "other rank has told a "
                      "cause: restart"),
            std::string::npos)
      << text;
}

TEST_F(GangTest, ALoneRankHasNobodyToLose) {
  gang = Gang(config(1));
  auto alone = hello(0);
  alone.node.processes = 1;
  say(1, alone);
  EXPECT_EQ(sent<Stop>(say(1, Failed{0, raised(0, Cause::kPeer, seconds(0))}), 1).size(), 1U);
  std::string text;
  for (const auto& action : say(1, Stopping{0})) {
    if (const auto* line = std::get_if<LogLine>(&action)) text += line->text;
  }
  EXPECT_NE(text.find("exited with code 1: restart"), std::string::npos) << text;
}

TEST_F(GangTest, WhoHasLostALostReplicaSpendsNoRestart) {
  gather();
  say(1, Failed{0, raised(0, Cause::kPeer, seconds(0))});
  EXPECT_EQ(sent<Stop>(gang.on_closed(2, now), 1).size(), 1U);
  EXPECT_EQ(gang.restarts(), 0);
  say(1, Stopping{0});
  say(1, Stopped{0});
  EXPECT_EQ(sent<Start>(say(3, hello(1, 1)), 1).size(), 1U);
  now += kPeerFailureGrace;
  EXPECT_TRUE(sent<Stop>(gang.on_tick(now), 1).empty())
      << "what failed then is no failure of the next attempt";
}

TEST_F(GangTest, AKilledRankIsTheCauseWhenever) {
  gather();
  say(1, Failed{0, raised(0, Cause::kOwn, seconds(1))});
  auto died = killed(0);
  died.cause = Cause::kKilled;
  say(2, Failed{0, died});
  EXPECT_EQ(gang.culprit()->rank, 2);
}

TEST_F(GangTest, NobodyIsNamedForGoodOrStartedBeforeAllHaveAnsweredOrAreLost) {
  gather();
  const auto says = [](const GangActions& actions) {
    std::string text;
    for (const auto& action : actions) {
      if (const auto* line = std::get_if<LogLine>(&action)) text += line->text + "\n";
    }
    return text;
  };
  EXPECT_EQ(says(say(1, Failed{0, killed(0)})), "");
  EXPECT_EQ(says(say(1, Stopping{0})), "");
  EXPECT_TRUE(sent<Start>(say(1, Stopped{0}), 1).empty());
  EXPECT_NE(
      says(gang.on_closed(2, now)).find("rank 0 on pod-0 was killed by signal 9: restart 1 of 1"),
      std::string::npos);
  EXPECT_EQ(sent<Start>(say(3, hello(1, 1)), 1).size(), 1U);
  say(3, Failed{1, killed(0)});
  EXPECT_TRUE(says(say(3, Stopping{1})).empty());
  EXPECT_FALSE(gang.finished());
  EXPECT_NE(says(say(1, Stopped{1})).find("rank 2 on pod-1"), std::string::npos)
      << "an answer of an older version";
  EXPECT_TRUE(gang.finished());
}

TEST_F(GangTest, AProgramThatCannotBeStartedIsNotTriedAgain) {
  gather();
  say(1, Failed{0, {0, 127, std::nullopt, false, "NotExecutable", {"cannot start \"x\""}}});
  EXPECT_EQ(gang.phase(), GangPhase::kFailed);
  EXPECT_EQ(gang.restarts(), 0);
}

TEST_F(GangTest, MessagesOfAnEarlierAttemptChangeNothing) {
  gather();
  say(2, Failed{0, killed(1)});
  say(1, Stopped{0});
  say(2, Stopped{0});
  say(1, Failed{0, killed(0)});
  say(1, Done{0});
  say(2, Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  EXPECT_EQ(gang.restarts(), 1);
}

TEST_F(GangTest, AFailureWithAnImpossibleRankIsIgnored) {
  gather();
  say(2, Failed{0, killed(2)});
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
}

TEST_F(GangTest, AllRanksMustSucceed) {
  gather();
  say(1, Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  const auto actions = say(2, Done{0});
  EXPECT_EQ(sent<Finish>(actions, 1).at(0).verdict, Verdict::kSucceeded);
}

TEST_F(GangTest, AReplicaThatStillRunsLongAfterAnotherEndedIsNamedOnce) {
  gather();
  say(2, Done{0});
  const auto named = [&](std::chrono::seconds time) {
    now += time;
    say(1, Heartbeat{});
    say(2, Heartbeat{});
    std::string text;
    for (const auto& action : gang.on_tick(now)) {
      if (const auto* line = std::get_if<LogLine>(&action)) text += line->text;
    }
    return text;
  };
  EXPECT_EQ(named(seconds(0)), "");
  for (int i = 0; i < 59; ++i) EXPECT_EQ(named(seconds(1)), "");
  EXPECT_NE(named(seconds(1)).find("60 s after the first replica ended: pod-0;"),
            std::string::npos);
  EXPECT_EQ(named(kStragglerWarning), "");
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
}

TEST_F(GangTest, RankZeroAloneDecidesWhereThePolicySaysSo) {
  auto policy = config(2);
  policy.rank_zero_decides = true;
  gang = Gang(policy);
  gather();
  say(2, Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  say(1, Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kSucceeded);
}

TEST_F(GangTest, ALostMemberIsWaitedForAndCostsNoRestart) {
  gather();
  const auto stop = gang.on_closed(2, now);
  EXPECT_EQ(sent<Stop>(stop, 1).size(), 1U);
  EXPECT_EQ(gang.restarts(), 0);
  EXPECT_TRUE(sent<Start>(say(1, Stopped{0}), 1).empty());
  const auto actions = say(3, hello(1, 1, 0, 0));
  ASSERT_EQ(sent<Start>(actions, 3).size(), 1U);
  EXPECT_EQ(sent<Start>(actions, 3)[0].attempt, 1);
  EXPECT_EQ(gang.table().nodes.at(1).incarnation, 1);
}

TEST_F(GangTest, ANewIncarnationTakesOverAndTheOldOneIsSentAway) {
  gather();
  const auto actions = say(3, hello(1, 1));
  EXPECT_EQ(sent<Refused>(actions, 2).size(), 1U);
  EXPECT_TRUE(closes(actions, 2));
  EXPECT_EQ(gang.phase(), GangPhase::kRestarting);
  EXPECT_EQ(sent<Refused>(say(4, hello(1, 0)), 4).size(), 1U) << "the old one comes back";
  EXPECT_TRUE(gang.on_closed(2, now).empty()) << "its old connection no longer counts";
  EXPECT_EQ(sent<Start>(say(1, Stopped{0}), 3).size(), 1U);
}

TEST_F(GangTest, TheHigherOfCountedAndSeededWins) {
  say(1, hello(0, 0, 2, 1));
  const auto actions = say(2, hello(1, 1, 5, 0));
  EXPECT_EQ(sent<Start>(actions, 1).at(0).attempt, 5);
  EXPECT_EQ(gang.restarts(), 1);
  say(1, Failed{5, killed(0)});
  settle(5);
  EXPECT_EQ(gang.phase(), GangPhase::kFailed) << "the seeded restart counts against the budget";
}

TEST_F(GangTest, SilenceIsLoss) {
  gather();
  now += seconds(9);
  say(1, Heartbeat{});
  gang.on_tick(now);
  EXPECT_EQ(gang.gathered(), 2);
  now += seconds(2);
  const auto actions = gang.on_tick(now);
  EXPECT_EQ(gang.gathered(), 1);
  EXPECT_TRUE(closes(actions, 2));
  EXPECT_EQ(sent<Stop>(actions, 1).size(), 1U);
}

TEST_F(GangTest, AMemberThatTakesOrSendsPartsOfALargeMessageIsNotSilent) {
  gather();
  for (int i = 0; i < 3; ++i) {
    now += seconds(9);
    say(1, Heartbeat{});
    gang.on_progress(2, now);
    gang.on_tick(now);
  }
  EXPECT_EQ(gang.gathered(), 2);
  gang.on_progress(9, now);  // no member
}

TEST_F(GangTest, ATimeInWhichThisLauncherDidNotRunIsNoSilence) {
  gather();
  now += seconds(60);
  gang.on_pause(seconds(60));
  gang.on_tick(now);
  EXPECT_EQ(gang.gathered(), 2);
  now += seconds(11);
  gang.on_tick(now);
  EXPECT_EQ(gang.gathered(), 0) << "the pause is forgiven, what follows is not";
}

TEST_F(GangTest, AConnectionIsOneMember) {
  say(1, hello(0));
  EXPECT_TRUE(say(1, hello(1)).empty());
  EXPECT_EQ(gang.gathered(), 1);
}

// Rank 0 has connection 1, and node rank N connection N + 1.
struct LargeGangTest : GangTest {
  static constexpr int kMembers = 1200;

  GangActions gather_all(int without_port = -1) {
    gang = Gang(config(kMembers));
    GangActions last;
    for (int rank = 0; rank < kMembers; ++rank) {
      Hello value = hello(rank);
      if (passes_table_on(rank, kMembers) && rank != without_port) value.table_port = 4000;
      last = say(static_cast<ConnectionId>(rank) + 1, value);
    }
    return last;
  }
};

TEST_F(LargeGangTest, SendsTheTableToFewMembersWhichPassItOn) {
  const auto actions = gather_all();
  const auto direct = tables(actions);
  ASSERT_EQ(direct.size(), 1U + kTableChildren);
  EXPECT_EQ(direct.front(), 1U);
  EXPECT_EQ(direct.back(), 1U + kTableChildren);
  int started = 0;
  for (int rank = 0; rank < kMembers; ++rank) {
    const auto start = sent<Start>(actions, static_cast<ConnectionId>(rank) + 1);
    ASSERT_EQ(start.size(), 1U) << rank;
    const int parent = table_parent(rank, kMembers);
    EXPECT_EQ(start[0].table_from, parent == 0 ? "" : "10.0.0." + std::to_string(parent) + ":4000");
    EXPECT_TRUE(parent == 0 || passes_table_on(parent, kMembers)) << rank;
    ++started;
  }
  EXPECT_EQ(started, kMembers);
}

TEST_F(LargeGangTest, SendsTheTableItselfWhereAMemberCannotPassItOn) {
  const auto direct = tables(gather_all(1));
  EXPECT_EQ(direct.size(), 1U + 2 * kTableChildren);
  EXPECT_EQ(std::ranges::count(direct, 1U + kTableChildren + 1), 1);
}

TEST_F(LargeGangTest, SendsTheTableToWhoeverAsksForThatOfTheAttempt) {
  gather_all();
  EXPECT_EQ(tables(say(900, NeedTable{0})), std::vector<ConnectionId>{900});
  EXPECT_TRUE(tables(say(900, NeedTable{1})).empty());
  say(900, Failed{0, killed(0)});
  EXPECT_TRUE(tables(say(901, NeedTable{0})).empty()) << "it is told to stop";
}

TEST_F(LargeGangTest, EncodesWhatConcernsAllOnce) {
  gather_all();
  const auto stop = say(900, Failed{0, killed(0)});
  ASSERT_EQ(stop.size(), 1U);
  EXPECT_EQ(std::get<SendToAll>(stop[0]).to.size(), static_cast<std::size_t>(kMembers));
  now += kHeartbeatInterval;
  const auto tick = gang.on_tick(now);
  ASSERT_EQ(tick.size(), 1U);
  EXPECT_EQ(std::get<SendToAll>(tick[0]).to.size(), static_cast<std::size_t>(kMembers));
}

TEST_F(LargeGangTest, LogsAPartOfTheJoins) {
  gang = Gang(config(kMembers));
  int lines = 0;
  for (int rank = 0; rank < kMembers - 1; ++rank) {
    for (const auto& action : say(static_cast<ConnectionId>(rank) + 1, hello(rank)))
      lines += std::holds_alternative<LogLine>(action) ? 1 : 0;
  }
  EXPECT_GT(lines, 10);
  EXPECT_LT(lines, 100);
}

TEST_F(GangTest, BacksOffBeforeARestart) {
  auto patient = config(1);
  patient.backoff = seconds(3);
  gang = Gang(patient);
  say(1, hello(0));
  say(1, Failed{0, killed(0)});
  EXPECT_TRUE(sent<Start>(say(1, Stopped{0}), 1).empty());
  now += seconds(2);
  EXPECT_TRUE(sent<Start>(gang.on_tick(now), 1).empty());
  now += seconds(1);
  EXPECT_EQ(sent<Start>(gang.on_tick(now), 1).size(), 1U);
}

TEST_F(GangTest, WhoComesAfterTheEndHearsTheEnd) {
  gather();
  say(1, Done{0});
  say(2, Done{0});
  gang.on_closed(2, now);
  EXPECT_EQ(sent<Finish>(say(3, hello(1, 1)), 3).size(), 1U);
}

}  // namespace
}  // namespace paceline::rendezvous
