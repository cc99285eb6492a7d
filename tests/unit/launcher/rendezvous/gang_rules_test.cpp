// SPDX-License-Identifier: Apache-2.0
// Rules of failurePolicy about ranks that fail in their pods.
#include "tests/unit/launcher/rendezvous/gang_fixture.hpp"

namespace paceline::rendezvous {
namespace {

using failure::Action;
using std::chrono::seconds;

struct GangRulesTest : RolesTest {
  /// Two workers run under these rules.
  void gather(std::vector<failure::Rule> rules, int max_restarts = 1) {
    auto settings = config(2);
    settings.rules = std::move(rules);
    settings.max_restarts = max_restarts;
    gang = Gang(settings);
    kinds = {kWorker, kWorker};
    join(0);
    join(1);
  }

  /// A rank of node rank 1 fails, and all ranks stop.
  GangActions fail(int attempt, const Failure& failure) {
    say(of(1), Failed{attempt, failure});
    auto actions = settle(attempt);
    for (const ConnectionId id : {of(0), of(1)}) {
      auto more = say(id, Stopped{attempt});
      actions.insert(actions.end(), more.begin(), more.end());
    }
    return actions;
  }

  static Failure exited(int code) { return {0, code, std::nullopt, false, "Exit", {}}; }
};

TEST_F(GangRulesTest, FailJobEndsAJobWithRestartsLeft) {
  gather({{.action = Action::kFailJob, .name = "config", .exit_codes = {{2, 2}}}});
  const auto actions = fail(0, exited(2));
  EXPECT_EQ(gang.phase(), GangPhase::kFailed);
  EXPECT_EQ(gang.restarts(), 0);
  EXPECT_EQ(gang.culprit()->rule, "failurePolicy.rules[0] (config) says FailJob");
  ASSERT_EQ(sent<Finish>(actions, of(0)).size(), 1U);
  EXPECT_EQ(sent<Finish>(actions, of(0))[0].message,
            "rank 2 on pod-1 exited with code 2: failurePolicy.rules[0] (config) says FailJob");
}

TEST_F(GangRulesTest, WhatNoRuleNamesRestartsTheGang) {
  gather({{.action = Action::kFailJob, .exit_codes = {{2, 2}}}});
  fail(0, exited(1));
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  EXPECT_EQ(gang.attempt(), 1);
  EXPECT_EQ(gang.restarts(), 1);
  EXPECT_EQ(gang.culprit()->rule, "");
}

TEST_F(GangRulesTest, TheCulpritsFailureDecidesAndNotASurvivors) {
  gather({{.action = Action::kFailJob, .exit_codes = {{1, 1}}},
          {.action = Action::kIgnore, .signals = {9}}});
  say(of(0), Failed{0, raised(0, Cause::kPeer, std::chrono::milliseconds(0))});
  fail(0, killed(0));
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  EXPECT_EQ(gang.culprit()->rule, "failurePolicy.rules[1] says Ignore");
}

TEST_F(GangRulesTest, IgnoreSpendsNoRestartAndPausesLongerEachTime) {
  gather({{.action = Action::kIgnore, .exit_codes = {{75, 75}}}}, 0);
  for (int attempt = 0; attempt < 2; ++attempt) {
    fail(attempt, exited(75));
    ASSERT_EQ(gang.attempt(), attempt + 1);
    ASSERT_EQ(gang.phase(), GangPhase::kRunning) << attempt;
  }
  for (const int pause : {1, 2, 4}) {
    fail(gang.attempt(), exited(75));
    now += seconds(pause) - std::chrono::milliseconds(1);
    gang.on_tick(now);
    EXPECT_EQ(gang.phase(), GangPhase::kRestarting) << pause;
    now += std::chrono::milliseconds(1);
    gang.on_tick(now);
    EXPECT_EQ(gang.phase(), GangPhase::kRunning) << pause;
  }
  EXPECT_EQ(gang.restarts(), 0);
}

TEST_F(GangRulesTest, ReplaceNodeSendsTheReplicaAwayAndWaitsForAnother) {
  gather({{.action = Action::kReplaceNode, .exit_codes = {{77, 77}}}}, 0);
  say(of(1), Failed{0, exited(77)});
  const auto actions = settle(0);
  const auto stops = sent<Stop>(actions, of(1));
  ASSERT_EQ(stops.size(), 1U);
  EXPECT_EQ(stops[0].leave,
            "rank 2 on pod-1 exited with code 77: failurePolicy.rules[0] says ReplaceNode");
  EXPECT_TRUE(sent<Stop>(actions, of(0)).empty()) << "only that replica leaves";
  say(of(0), Stopped{0});
  EXPECT_EQ(gang.phase(), GangPhase::kRestarting);
  EXPECT_EQ(gang.gathered(), 1);
  join(1, 1);
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  EXPECT_EQ(gang.attempt(), 1);
  EXPECT_EQ(gang.restarts(), 0);
}

TEST_F(GangRulesTest, AProgramThatCannotBeStartedIsTriedAgainWhereARuleSaysSo) {
  gather({{.action = Action::kRestartGang, .reasons = {"NotExecutable"}}});
  fail(0, {0, 127, std::nullopt, false, "NotExecutable", {}});
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
  EXPECT_EQ(gang.restarts(), 1);
}

TEST_F(GangRulesTest, AHangIsAReason) {
  gather({{.action = Action::kFailJob, .reasons = {"Hang"}}});
  gang.end_hang(3, "in all_reduce", now);
  settle(0);
  EXPECT_EQ(gang.phase(), GangPhase::kFailed);
}

struct RolesUnderRulesTest : GangRulesTest {
  /// A server, two workers and an evaluator run under this rule.
  void gather(failure::Rule rule) {
    auto settings = config(4);
    settings.rules = {std::move(rule)};
    gang = Gang(settings);
    kinds = {kServer, kWorker, kWorker, kEvaluator};
    for (int rank = 0; rank < 4; ++rank) join(rank);
  }
};

TEST_F(RolesUnderRulesTest, RestartGangStopsTheOthersToo) {
  gather({.action = Action::kRestartGang});
  const auto stop = say(of(1), Failed{0, killed(0)});
  EXPECT_EQ(sent<Stop>(stop, of(2)).size(), 1U);
  EXPECT_EQ(gang.phase(), GangPhase::kRestarting);
}

TEST_F(RolesUnderRulesTest, IgnoreRestartsAWorkerAloneForNothing) {
  gather({.action = Action::kIgnore});
  const auto stop = say(of(1), Failed{0, killed(0)});
  EXPECT_EQ(sent<Stop>(stop, of(1)).size(), 1U);
  EXPECT_TRUE(sent<Stop>(stop, of(2)).empty());
  EXPECT_EQ(gang.restarts(), 0);
}

TEST_F(RolesUnderRulesTest, ARuleThatNamesNoRoleLeavesEvaluatorsAlone) {
  gather({.action = Action::kFailJob});
  say(of(3), Failed{0, killed(0)});
  EXPECT_EQ(gang.phase(), GangPhase::kRunning);
}

}  // namespace
}  // namespace paceline::rendezvous
