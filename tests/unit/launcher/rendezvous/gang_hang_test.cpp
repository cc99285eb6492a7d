// SPDX-License-Identifier: Apache-2.0
// Stacks of a gang, and what follows when it hangs.
#include <gtest/gtest.h>

#include "launcher/rendezvous/member.hpp"
#include "tests/unit/launcher/rendezvous/gang_fixture.hpp"

namespace paceline::rendezvous {
namespace {

struct GangHang : GangTest {};

TEST_F(GangHang, StacksAreThoseThatMembersWereAskedFor) {
  gather();
  say(1, CapturedStacks{0, {{0, "not asked"}}});
  EXPECT_TRUE(gang.stacks().empty());
  const auto actions = gang.capture_stacks();
  EXPECT_EQ(sent<CaptureStacks>(actions, 1).size() + sent<CaptureStacks>(actions, 2).size(), 2U);
  EXPECT_FALSE(gang.stacks_complete());
  say(1, CapturedStacks{0, {{0, "a"}, {1, "b"}, {2, "of another member"}}});
  say(1, CapturedStacks{0, {{0, "again"}}});
  say(2, CapturedStacks{7, {{2, "of another attempt"}}});
  EXPECT_EQ(gang.stacks(), (std::map<int, std::string>{{0, "a"}, {1, "b"}}));
  EXPECT_FALSE(gang.stacks_complete());
  say(2, CapturedStacks{0, {{3, "c"}}});
  EXPECT_TRUE(gang.stacks_complete());
  EXPECT_EQ(gang.stacks().at(3), "c");
  gang.capture_stacks();
  EXPECT_TRUE(gang.stacks().empty()) << "older ones are no answer";
  say(1, CapturedStacks{0, {}});
  gang.on_closed(2, now);
  EXPECT_TRUE(gang.stacks_complete()) << "a member that is gone does not answer";
}

TEST_F(GangHang, MembersAreAskedForAWindowWhileTheirRanksTrain) {
  EXPECT_TRUE(gang.open_window().empty()) << "nothing runs yet";
  gather();
  const auto actions = gang.open_window();
  EXPECT_EQ(sent<OpenWindow>(actions, 1).size() + sent<OpenWindow>(actions, 2).size(), 2U);
}

TEST_F(GangHang, ARestartForItNamesTheRank) {
  EXPECT_TRUE(gang.end_hang(3, "why", now).empty()) << "nothing runs yet";
  gather();
  EXPECT_TRUE(gang.end_hang(9, "why", now).empty()) << "there is no such rank";
  const auto actions = gang.end_hang(3, "why", now);
  EXPECT_EQ(sent<Stop>(actions, 1).size() + sent<Stop>(actions, 2).size(), 2U);
  EXPECT_EQ(gang.phase(), GangPhase::kRestarting);
  ASSERT_TRUE(gang.culprit());
  EXPECT_EQ(gang.culprit()->rank, 3);
  EXPECT_EQ(gang.culprit()->failure.reason, "Hang");
  EXPECT_EQ(gang.culprit()->failure.last_lines.at(0), "why");
  EXPECT_EQ(describe(*gang.culprit()), "rank 3 on pod-1 hung");
  settle(0);
  EXPECT_EQ(gang.restarts(), 1);
  say(1, Stopped{0});
  say(2, Stopped{0});
  EXPECT_EQ(gang.attempt(), 1);
  gang.end_hang(0, "again", now);
  const auto end = settle(1);
  ASSERT_EQ(sent<Finish>(end, 1).size(), 1U) << "its restarts are spent";
  EXPECT_EQ(sent<Finish>(end, 1)[0].verdict, Verdict::kFailed);
}

TEST_F(GangHang, ALostMembersRanksDoNothing) {
  gather();
  telemetry::RankSummary rank;
  rank.rank = 2;
  rank.live = telemetry::LiveState{.phase = 4, .seconds = 5};
  say(2, Heartbeat{{rank}});
  EXPECT_TRUE(gang.ranks().at(0).live);
  gang.on_closed(2, now);
  EXPECT_FALSE(gang.ranks().at(0).live);
}

}  // namespace
}  // namespace paceline::rendezvous
