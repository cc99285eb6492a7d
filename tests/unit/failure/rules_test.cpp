// SPDX-License-Identifier: Apache-2.0
#include "common/failure/rules.hpp"

#include <gtest/gtest.h>

namespace paceline::failure {
namespace {

using Conditions = std::vector<Condition>;

struct Case {
  const char* name;
  Rule rule;
  Facts facts;
  bool matches;
};

const Conditions kDrained{{"DisruptionTarget", "True", "EvictionByEvictionAPI"}};

TEST(FailureRules, MatchWhatTheyName) {
  const Case cases[] = {
      {"an exit code", {.exit_codes = {{2, 2}}}, {.exit_code = 2}, true},
      {"another exit code", {.exit_codes = {{2, 2}}}, {.exit_code = 3}, false},
      {"a range ends with its last code", {.exit_codes = {{64, 113}}}, {.exit_code = 113}, true},
      {"a range begins with its first code", {.exit_codes = {{64, 113}}}, {.exit_code = 63}, false},
      {"no exit code is known", {.exit_codes = {{1, 255}}}, {.reasons = {"Deleted"}}, false},
      {"a signal", {.signals = {11}}, {.signal = 11}, true},
      {"a signal as a shell reports it", {.signals = {9}}, {.exit_code = 137}, true},
      {"a signal is an exit code", {.exit_codes = {{137, 137}}}, {.signal = 9}, true},
      {"128 is no signal", {.signals = {0}}, {.exit_code = 128}, false},
      {"a reason", {.reasons = {"OOMKilled"}}, {.reasons = {"Signal", "OOMKilled"}}, true},
      {"a missing reason", {.reasons = {"OOMKilled"}}, {.reasons = {""}}, false},
      {"a condition of any reason",
       {.pod_conditions = {{"DisruptionTarget"}}},
       {.pod_conditions = &kDrained},
       true},
      {"a condition of another reason",
       {.pod_conditions = {{"DisruptionTarget", "True", "PreemptionByScheduler"}}},
       {.pod_conditions = &kDrained},
       false},
      {"a pod's condition is none of the node's",
       {.node_conditions = {{"DisruptionTarget"}}},
       {.pod_conditions = &kDrained},
       false},
      {"any of several causes",
       {.exit_codes = {{1, 1}}, .reasons = {"OOMKilled"}},
       {.exit_code = 7, .reasons = {"OOMKilled"}},
       true},
      {"every failure of a role", {.roles = {"server"}}, {.role = "server"}, true},
      {"not that of another role",
       {.roles = {"server"}, .exit_codes = {{1, 1}}},
       {.role = "worker", .exit_code = 1},
       false},
      {"everything", {}, {.role = "worker"}, true},
      {"not an evaluator's", {}, {.role = "eval", .evaluator = true}, false},
      {"an evaluator's by name", {.roles = {"eval"}}, {.role = "eval", .evaluator = true}, true},
  };
  for (const Case& c : cases) EXPECT_EQ(decide({c.rule}, c.facts).has_value(), c.matches) << c.name;
}

TEST(FailureRules, TheFirstThatMatchesDecidesAndSaysSo) {
  const std::vector<Rule> rules{
      {.action = Action::kIgnore, .exit_codes = {{9, 9}}},
      {.action = Action::kFailJob, .name = "config", .exit_codes = {{2, 2}}},
      {.action = Action::kRestartGang}};
  const auto decision = decide(rules, {.exit_code = 2});
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->action, Action::kFailJob);
  EXPECT_EQ(decision->text, "failurePolicy.rules[1] (config) says FailJob");
  EXPECT_EQ(decide(rules, {.exit_code = 1})->text, "failurePolicy.rules[2] says RestartGang");
  EXPECT_FALSE(decide({}, {.exit_code = 1}));
}

TEST(FailureRules, SurviveTheWayToTheLauncher) {
  const std::vector<Rule> rules{{.action = Action::kReplaceNode,
                                 .name = "gpu",
                                 .roles = {"worker"},
                                 .exit_codes = {{3, 7}, {77, 77}},
                                 .signals = {7},
                                 .reasons = {"OOMKilled"},
                                 .pod_conditions = kDrained,
                                 .node_conditions = {{"Ready", "False", ""}}},
                                {}};
  const auto read = parse_rules(to_json(rules));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, rules);
}

TEST(FailureRules, RefuseWhatTheOperatorDoesNotWrite) {
  for (const char* text : {"", "{}", "[1]", R"([{"action":"Panic"}])", R"([{"action":"FailJob"}])"})
    EXPECT_FALSE(parse_rules(text)) << text;
}

}  // namespace
}  // namespace paceline::failure
