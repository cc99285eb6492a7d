// SPDX-License-Identifier: Apache-2.0
// spec.failurePolicy.rules: which reaction follows from which failure. The launcher of node rank 0
// asks them about a rank that failed in its pod, the operator about a pod that ended or was lost.
// The first rule that matches decides; if none does, the built-in reaction follows.
//
// Values; pure.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/error.hpp"

namespace paceline::failure {

enum class Action { kFailJob, kRestartRank, kRestartGang, kReplaceNode, kIgnore };

inline constexpr std::array<std::string_view, 5> kActions{"FailJob", "RestartRank", "RestartGang",
                                                          "ReplaceNode", "Ignore"};

constexpr std::string_view to_string(Action action) {
  return kActions[static_cast<std::size_t>(action)];
}

/// Exit codes from `first` to `last`.
struct CodeRange {
  int first = 0;
  int last = 0;
  bool operator==(const CodeRange&) const = default;
};

/// A condition of a pod or a node. In a rule an empty reason fits every reason.
struct Condition {
  std::string type;
  std::string status = "True";
  std::string reason{};
  bool operator==(const Condition&) const = default;
};

struct Rule {
  Action action = Action::kRestartGang;
  std::string name{};                // empty: it has none
  std::vector<std::string> roles{};  // empty: all roles but evaluators
  // The rule matches if one of these does. If all are empty, it matches every failure of its roles.
  std::vector<CodeRange> exit_codes{};
  std::vector<int> signals{};
  std::vector<std::string> reasons{};
  std::vector<Condition> pod_conditions{};
  std::vector<Condition> node_conditions{};
  bool operator==(const Rule&) const = default;
};

/// What is known of one failure. A process that ends by signal N counts as one that exits with code
/// 128 + N, as shells and container runtimes report it, and the other way round.
struct Facts {
  std::string_view role{};
  bool evaluator = false;
  std::optional<int> exit_code{};
  std::optional<int> signal{};
  std::vector<std::string_view> reasons{};
  const std::vector<Condition>* pod_conditions = nullptr;
  const std::vector<Condition>* node_conditions = nullptr;
};

struct Decision {
  Action action = Action::kRestartGang;
  std::string text;  // for people: "failurePolicy.rules[1] (out-of-memory) says FailJob"
};

/// nullopt: no rule matches.
std::optional<Decision> decide(const std::vector<Rule>& rules, const Facts& facts);

/// PACELINE_FAILURE_RULES.
std::string to_json(const std::vector<Rule>& rules);
Result<std::vector<Rule>> parse_rules(std::string_view json);

}  // namespace paceline::failure
