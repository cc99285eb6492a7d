// SPDX-License-Identifier: Apache-2.0
#include "common/failure/rules.hpp"

#include <algorithm>

#include "common/json/fields.hpp"

namespace paceline::failure {
namespace {

using nlohmann::json;

constexpr int kSignalBase = 128;
constexpr int kMostSignal = 64;
constexpr std::size_t kMostRules = 20;
constexpr std::size_t kMostEntries = 64;

template <typename List, typename Value>
bool contains(const List& list, const Value& value) {
  return std::ranges::find(list, value) != list.end();
}

bool fits(const std::vector<Condition>& patterns, const std::vector<Condition>* present) {
  return present != nullptr && std::ranges::any_of(patterns, [&](const Condition& pattern) {
           return std::ranges::any_of(*present, [&](const Condition& condition) {
             return condition.type == pattern.type && condition.status == pattern.status &&
                    (pattern.reason.empty() || condition.reason == pattern.reason);
           });
         });
}

bool names_role(const Rule& rule, const Facts& facts) {
  return rule.roles.empty() ? !facts.evaluator : contains(rule.roles, facts.role);
}

bool names_a_cause(const Rule& rule) {
  return !rule.exit_codes.empty() || !rule.signals.empty() || !rule.reasons.empty() ||
         !rule.pod_conditions.empty() || !rule.node_conditions.empty();
}

bool matches(const Rule& rule, const Facts& facts) {
  if (!names_role(rule, facts)) return false;
  if (!names_a_cause(rule)) return true;
  const int code = facts.exit_code ? *facts.exit_code
                   : facts.signal  ? kSignalBase + *facts.signal
                                   : 0;
  const int signal = facts.signal.value_or(
      code > kSignalBase && code <= kSignalBase + kMostSignal ? code - kSignalBase : 0);
  return std::ranges::any_of(rule.exit_codes,
                             [&](CodeRange range) {
                               return code > 0 && range.first <= code && code <= range.last;
                             }) ||
         (signal > 0 && contains(rule.signals, signal)) ||
         std::ranges::any_of(facts.reasons,
                             [&](std::string_view reason) {
                               return !reason.empty() && contains(rule.reasons, reason);
                             }) ||
         fits(rule.pod_conditions, facts.pod_conditions) ||
         fits(rule.node_conditions, facts.node_conditions);
}

json form(const std::vector<Condition>& conditions) {
  json list = json::array();
  for (const Condition& condition : conditions)
    list.push_back({condition.type, condition.status, condition.reason});
  return list;
}

std::vector<std::string> texts(JsonFields& fields, const char* key) {
  std::vector<std::string> found;
  for (const json& text : fields.array(key, kMostEntries)) {
    if (text.is_string()) {
      found.push_back(text.get<std::string>());
    } else {
      fields.note(key, "holds something that is not a string");
    }
  }
  return found;
}

std::vector<Condition> conditions(JsonFields& fields, const char* key) {
  std::vector<Condition> found;
  for (const json& entry : fields.array(key, kMostEntries)) {
    const bool well_formed =
        entry.is_array() && entry.size() == 3 &&
        std::ranges::all_of(entry, [](const json& e) { return e.is_string(); });
    if (well_formed) {
      found.push_back({entry[0], entry[1], entry[2]});
    } else {
      fields.note(key, "holds something that is not [type, status, reason]");
    }
  }
  return found;
}

std::vector<int> numbers(JsonFields& fields, const char* key) {
  std::vector<int> found;
  for (const json& number : fields.array(key, 2 * kMostEntries)) {
    if (number.is_number_integer() && number >= 0 && number <= 255) {
      found.push_back(number.get<int>());
    } else {
      fields.note(key, "holds something that is not a number from 0 to 255");
    }
  }
  return found;
}

Rule read_rule(const json& object, std::string& problem) {
  JsonFields fields(object, problem);
  Rule rule;
  const auto* const action = std::ranges::find(kActions, fields.text("action", 32));
  if (action == kActions.end()) {
    fields.note("action", "is not known");
  } else {
    rule.action = static_cast<Action>(action - kActions.begin());
  }
  rule.name = fields.text("name", 63);
  rule.roles = texts(fields, "roles");
  const std::vector<int> bounds = numbers(fields, "exitCodes");
  for (std::size_t i = 0; i + 1 < bounds.size(); i += 2)
    rule.exit_codes.push_back({bounds[i], bounds[i + 1]});
  rule.signals = numbers(fields, "signals");
  rule.reasons = texts(fields, "reasons");
  rule.pod_conditions = conditions(fields, "podConditions");
  rule.node_conditions = conditions(fields, "nodeConditions");
  return rule;
}

}  // namespace

std::optional<Decision> decide(const std::vector<Rule>& rules, const Facts& facts) {
  const auto rule = std::ranges::find_if(rules, [&](const Rule& r) { return matches(r, facts); });
  if (rule == rules.end()) return std::nullopt;
  return Decision{rule->action, "failurePolicy.rules[" + std::to_string(rule - rules.begin()) +
                                    "]" + (rule->name.empty() ? "" : " (" + rule->name + ")") +
                                    " says " + std::string(to_string(rule->action))};
}

std::string to_json(const std::vector<Rule>& rules) {
  json list = json::array();
  for (const Rule& rule : rules) {
    json bounds = json::array();
    for (const CodeRange range : rule.exit_codes) {
      bounds.push_back(range.first);
      bounds.push_back(range.last);
    }
    list.push_back({{"action", to_string(rule.action)},
                    {"name", rule.name},
                    {"roles", rule.roles},
                    {"exitCodes", std::move(bounds)},
                    {"signals", rule.signals},
                    {"reasons", rule.reasons},
                    {"podConditions", form(rule.pod_conditions)},
                    {"nodeConditions", form(rule.node_conditions)}});
  }
  return list.dump();
}

Result<std::vector<Rule>> parse_rules(std::string_view text) {
  const json list = json::parse(text, nullptr, false);
  if (!list.is_array() || list.size() > kMostRules)
    return fail(Code::kInvalid, Origin::kConfig, "the rules are not a JSON list of at most 20");
  std::vector<Rule> rules;
  std::string problem;
  for (const json& entry : list) rules.push_back(read_rule(entry, problem));
  if (!problem.empty())
    return fail(Code::kInvalid, Origin::kConfig, "a field of a rule: " + problem);
  return rules;
}

}  // namespace paceline::failure
