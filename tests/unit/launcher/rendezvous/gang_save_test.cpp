// SPDX-License-Identifier: Apache-2.0
// Ranks save at one step before a member ends.
#include "tests/unit/launcher/rendezvous/gang_fixture.hpp"

namespace paceline::rendezvous {
namespace {

TEST(StepToSaveAt, IsTheFirstThatNoRankHasReached) {
  struct Case {
    std::string name;
    std::vector<std::int64_t> reached;
    std::optional<std::int64_t> step;
  };
  for (const Case& one :
       {Case{"no member", {}, std::nullopt}, Case{"none can save", {-1, -1}, std::nullopt},
        Case{"one replica", {7}, 8}, Case{"before the first step ends", {0, 0}, 1},
        Case{"in step", {12, 12, 12}, 13}, Case{"one ahead", {12, 13, 12}, 14},
        Case{"one far behind", {900, 2}, 901},
        Case{"beside replicas that cannot save", {-1, 5, -1, 4}, 6}})
    EXPECT_EQ(step_to_save_at(one.reached), one.step) << one.name;
}

struct GangSaveTest : GangTest {
  GangSaveTest() { gather(); }

  static Save word(SaveWord said, std::int64_t step = -1, int ranks = 0, int saved = 0) {
    return {said, 0, step, ranks, saved};
  }

  /// Member 2 asks, and the gang agrees on step 6.
  void agree() {
    say(2, word(SaveWord::kAsk));
    say(1, word(SaveWord::kReached, 5));
    const auto at = sent<Save>(say(2, word(SaveWord::kReached, 4)), 1);
    ASSERT_EQ(at.size(), 1U);
    EXPECT_EQ(at[0].word, SaveWord::kAt);
    EXPECT_EQ(at[0].step, 6);
  }

  static bool says_ended(const GangActions& actions, ConnectionId to, std::int64_t step) {
    const auto said = sent<Save>(actions, to);
    return said.size() == 1 && said[0].word == SaveWord::kEnded && said[0].step == step;
  }
};

TEST_F(GangSaveTest, AllAreAskedThenToldThenAwaited) {
  const auto asked = say(2, word(SaveWord::kAsk));
  for (const ConnectionId id : {ConnectionId{1}, ConnectionId{2}}) {
    ASSERT_EQ(sent<Save>(asked, id).size(), 1U);
    EXPECT_EQ(sent<Save>(asked, id)[0].word, SaveWord::kHold);
  }
  EXPECT_TRUE(say(1, word(SaveWord::kReached, 5)).empty()) << "the other has not answered";
  say(2, word(SaveWord::kReached, 5));
  EXPECT_TRUE(say(1, word(SaveWord::kSaved, 6, 2, 2)).empty());
  now += std::chrono::milliseconds(1240);
  const auto ended = say(2, word(SaveWord::kSaved, 6, 2, 2));
  EXPECT_TRUE(says_ended(ended, 1, 6));
  EXPECT_TRUE(says_ended(ended, 2, 6));
  EXPECT_EQ(lines(ended), "saved at step 6 on all ranks, in 1.2 s\n");
  ASSERT_TRUE(gang.saved().has_value());
  EXPECT_EQ(gang.saved()->step, 6);
}

TEST_F(GangSaveTest, WhoeverElseIsAskedToEndHearsOfTheSameSave) {
  agree();
  EXPECT_TRUE(say(1, word(SaveWord::kAsk)).empty());
  say(1, word(SaveWord::kSaved, 6, 1, 1));
  say(2, word(SaveWord::kSaved, 6, 1, 1));
  EXPECT_TRUE(says_ended(say(1, word(SaveWord::kAsk)), 1, 6)) << "asked to end after the save";
}

TEST_F(GangSaveTest, NobodyWaitsIfNoRankCanSave) {
  say(2, word(SaveWord::kAsk));
  say(1, word(SaveWord::kReached));
  EXPECT_TRUE(says_ended(say(2, word(SaveWord::kReached)), 2, -1));
  EXPECT_FALSE(gang.saved().has_value());
}

TEST_F(GangSaveTest, RanksThatDidNotSaveAreCounted) {
  agree();
  say(1, word(SaveWord::kSaved, 6, 2, 1));
  const auto ended = say(2, word(SaveWord::kSaved, 6, 2, 2));
  EXPECT_NE(lines(ended).find("on 3 of 4 ranks"), std::string::npos) << lines(ended);
  EXPECT_TRUE(says_ended(ended, 2, -1));
  EXPECT_FALSE(gang.saved().has_value());
}

TEST_F(GangSaveTest, RanksThatEndBecauseTheySavedHaveNotFinishedTheJob) {
  agree();
  say(1, Done{0});
  say(2, Done{0});
  say(1, word(SaveWord::kSaved, 6, 2, 2));
  say(2, word(SaveWord::kSaved, 6, 2, 2));
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  EXPECT_EQ(sent<Stop>(gang.on_closed(2, now), 1).size(), 1U);
  EXPECT_EQ(gang.phase(), GangPhase::kRestarting);
  EXPECT_EQ(gang.restarts(), 0);
}

TEST_F(GangSaveTest, RanksThatEndBeforeTheyWereToSaveHaveFinishedIt) {
  agree();
  say(1, Done{0});
  say(2, Done{0});
  say(1, word(SaveWord::kSaved));
  EXPECT_EQ(sent<Finish>(say(2, word(SaveWord::kSaved)), 2).size(), 1U);
  EXPECT_EQ(gang.phase(), GangPhase::kSucceeded);
}

TEST_F(GangSaveTest, AFailureEndsTheWaitAndCostsNoRestart) {
  agree();
  const auto stopped = say(1, Failed{0, raised(0, Cause::kPeer, {})});
  EXPECT_EQ(sent<Stop>(stopped, 1).size(), 1U);
  EXPECT_EQ(sent<Stop>(stopped, 2).size(), 1U);
  settle(0);
  EXPECT_EQ(gang.restarts(), 0);
  EXPECT_EQ(gang.phase(), GangPhase::kRestarting);
}

TEST_F(GangSaveTest, AMemberThatLeavesMeanwhileStopsTheGang) {
  agree();
  EXPECT_EQ(sent<Stop>(gang.on_closed(2, now), 1).size(), 1U);
  EXPECT_TRUE(say(1, word(SaveWord::kSaved, 6, 2, 2)).empty()) << "of an attempt that is over";
}

struct GangWarnTest : GangSaveTest {
  /// A node is warned, and the gang agrees on step 6.
  void agree() {
    const auto held = sent<Save>(gang.warn({"node-a"}, now), 2);
    ASSERT_EQ(held.size(), 1U);
    EXPECT_EQ(held[0].word, SaveWord::kHold);
    EXPECT_TRUE(held[0].go_on);
    say(1, word(SaveWord::kReached, 5));
    const auto told = say(2, word(SaveWord::kReached, 4));
    EXPECT_EQ(lines(told), "the job may soon lose node-a: the ranks save, and train on\n");
    const auto at = sent<Save>(told, 1);
    ASSERT_EQ(at.size(), 1U);
    EXPECT_EQ(at[0].step, 6);
    EXPECT_TRUE(at[0].go_on);
  }

  GangActions save_all() {
    say(1, word(SaveWord::kSaved, 6, 2, 2));
    return say(2, word(SaveWord::kSaved, 6, 2, 2));
  }

  bool is_asked(const std::vector<std::string>& nodes) {
    return !sent<Save>(gang.warn(nodes, now), 1).empty();
  }
};

TEST_F(GangWarnTest, TheGangTrainsOnAfterTheSave) {
  agree();
  const auto ended = save_all();
  EXPECT_TRUE(says_ended(ended, 1, 6));
  EXPECT_TRUE(says_ended(ended, 2, 6));
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  ASSERT_TRUE(gang.saved().has_value());
  EXPECT_EQ(gang.saved()->step, 6);
  say(1, Done{0});
  say(2, Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kSucceeded);
}

TEST_F(GangWarnTest, EachWarningAsksOnce) {
  agree();
  EXPECT_FALSE(is_asked({"node-a", "node-b"})) << "a save is under way";
  save_all();
  for (int i = 0; i < 3; ++i, now += std::chrono::minutes(5)) EXPECT_FALSE(is_asked({"node-a"}));
  EXPECT_TRUE(is_asked({"node-a", "node-b"})) << "of another node";
  for (const ConnectionId id : {ConnectionId{1}, ConnectionId{2}})
    say(id, word(SaveWord::kReached, 9));
  save_all();
  EXPECT_FALSE(is_asked({"node-b"}));
  now += kWarningLapses + std::chrono::seconds(1);
  EXPECT_TRUE(is_asked({"node-b"})) << "it was over";
}

TEST_F(GangWarnTest, AWarningIsKeptUntilRanksCanSave) {
  EXPECT_TRUE(is_asked({"node-a"}));
  say(1, word(SaveWord::kReached));
  const auto ended = say(2, word(SaveWord::kReached));
  EXPECT_TRUE(says_ended(ended, 1, -1));
  EXPECT_EQ(lines(ended), "");
  agree();
}

TEST_F(GangWarnTest, AGangThatGathersIsNotAsked) {
  gang = Gang(config(2));
  EXPECT_FALSE(is_asked({"node-a"}));
  gather();
  agree();
}

TEST_F(GangWarnTest, RanksThatExitAfterTheSaveStartAgainAndSpendNoRestart) {
  agree();
  say(1, Done{0});
  say(1, word(SaveWord::kSaved, 6, 2, 2));
  const auto stopped = say(
      2,
      Save{.word = SaveWord::kSaved, .attempt = 0, .step = 6, .ranks = 2, .saved = 2, .gone = 1});
  EXPECT_EQ(sent<Stop>(stopped, 1).size(), 1U);
  EXPECT_EQ(sent<Stop>(stopped, 2).size(), 1U);
  EXPECT_EQ(gang.phase(), GangPhase::kRestarting);
  EXPECT_EQ(gang.restarts(), 0);
  EXPECT_EQ(gang.saved()->step, 6);
}

TEST_F(GangWarnTest, RanksThatGoOnToTheirEndMeanwhileFinishTheJob) {
  agree();
  say(1, Done{0});
  say(2, Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  EXPECT_EQ(sent<Finish>(save_all(), 1).size(), 1U);
  EXPECT_EQ(gang.phase(), GangPhase::kSucceeded);
}

TEST_F(GangWarnTest, AFailureMeanwhileSpendsARestart) {
  agree();
  say(1, Failed{0, raised(0, Cause::kOwn, {})});
  settle(0);
  EXPECT_EQ(gang.restarts(), 1);
  EXPECT_EQ(gang.phase(), GangPhase::kRestarting);
}

TEST_F(GangWarnTest, AMemberThatIsAskedToEndMeanwhileWaitsForTheSaveAndEnds) {
  agree();
  EXPECT_TRUE(say(2, word(SaveWord::kAsk)).empty());
  EXPECT_TRUE(says_ended(save_all(), 2, 6));
  say(1, Done{0});
  say(2, Done{0});
  EXPECT_EQ(gang.phase(), GangPhase::kRunning) << "they may have exited because they saved";
  EXPECT_EQ(sent<Stop>(gang.on_closed(2, now), 1).size(), 1U);
  EXPECT_EQ(gang.restarts(), 0);
}

struct RolesSaveTest : RolesTest {};

TEST_F(RolesSaveTest, AMemberThatFailsAloneIsNotAwaited) {
  gather_roles({kServer, kWorker, kWorker});
  const auto tell = [&](int member, SaveWord said, std::int64_t step, int ranks) {
    return say(of(member), Save{said, gang.attempt(), step, ranks, ranks});
  };
  gang.warn({"node-a"}, now);
  tell(0, SaveWord::kReached, -1, 0);
  for (const int worker : {1, 2}) tell(worker, SaveWord::kReached, 5, 0);
  tell(0, SaveWord::kSaved, -1, 0);
  say(of(1), Failed{gang.attempt(), raised(0, Cause::kOwn, {})});
  const auto ended = sent<Save>(tell(2, SaveWord::kSaved, 6, 2), of(2));
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].word, SaveWord::kEnded);
}

TEST_F(RolesSaveTest, AMemberThatFailsAloneKeepsNobody) {
  gather_roles({kServer, kWorker, kWorker});
  const auto actions = say(of(1), Save{SaveWord::kAsk, gang.attempt(), -1, 0, 0});
  ASSERT_EQ(sent<Save>(actions, of(1)).size(), 1U);
  EXPECT_EQ(sent<Save>(actions, of(1))[0].word, SaveWord::kEnded);
  EXPECT_TRUE(sent<Save>(actions, of(2)).empty());
}

}  // namespace
}  // namespace paceline::rendezvous
