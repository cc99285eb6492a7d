// SPDX-License-Identifier: Apache-2.0
#include "operator/api/failure_policy.hpp"

#include <string.h>  // sigabbrev_np

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "operator/api/object_reader.hpp"
#include "operator/api/roles.hpp"

namespace paceline::api {
namespace {

constexpr std::size_t kMostRules = 20;
constexpr std::size_t kMostEntries = 32;
constexpr int kMostSpares = 16;
constexpr int kMostPods = 10000;
constexpr int kMostCode = 255;
constexpr int kMostSignal = 64;

std::optional<int> whole_number(std::string_view text, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value >= 1 && value <= most ? std::optional(value) : std::nullopt;
}

std::optional<int> whole_number(const nlohmann::json& value, int most) {
  const bool fits = value.is_number_integer() && value >= 1 && value <= most;
  return fits ? std::optional(value.get<int>()) : std::nullopt;
}

/// 7, "7" or "64-113".
std::optional<failure::CodeRange> code_range(const nlohmann::json& value) {
  if (const auto code = whole_number(value, kMostCode)) return failure::CodeRange{*code, *code};
  if (!value.is_string()) return std::nullopt;
  const std::string_view text = value.get_ref<const std::string&>();
  const std::size_t dash = text.find('-');
  const auto first = whole_number(text.substr(0, dash), kMostCode);
  const auto last =
      dash == std::string_view::npos ? first : whole_number(text.substr(dash + 1), kMostCode);
  if (!first || !last || *first > *last) return std::nullopt;
  return failure::CodeRange{*first, *last};
}

/// 9 or "SIGKILL".
std::optional<int> signal_number(const nlohmann::json& value) {
  if (const auto signal = whole_number(value, kMostSignal)) return signal;
  if (!value.is_string()) return std::nullopt;
  std::string_view name = value.get_ref<const std::string&>();
  if (!name.starts_with("SIG")) return std::nullopt;
  name.remove_prefix(3);
  for (int signal = 1; signal <= kMostSignal; ++signal) {
    const char* const known = sigabbrev_np(signal);
    if (known != nullptr && name == known) return signal;
  }
  return std::nullopt;
}

/// A name as Kubernetes writes reasons, or a role's name.
std::optional<std::string> plain_word(const nlohmann::json& value) {
  constexpr std::size_t kMostBytes = 64;
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  const bool plain = std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
  return plain && text.size() <= kMostBytes ? std::optional(text) : std::nullopt;
}

/// A list whose entries `read` turns into values.
template <typename Value, typename Read>
std::vector<Value> values_of(ObjectReader& reader, std::string_view key, FieldErrors& errors,
                             Read read, const char* problem, const char* remedy) {
  std::vector<Value> values;
  const nlohmann::json* entries = reader.find(key);
  if (entries == nullptr) return values;
  if (!entries->is_array() || entries->empty() || entries->size() > kMostEntries) {
    reader.error(key, entries, "is not a list of 1 to 32 entries", remedy);
    return values;
  }
  for (std::size_t i = 0; i < entries->size(); ++i) {
    if (auto value = read((*entries)[i])) {
      values.push_back(std::move(*value));
    } else {
      errors.push_back({reader.path(key) + "[" + std::to_string(i) + "]", shown((*entries)[i]),
                        problem, remedy});
    }
  }
  return values;
}

std::vector<failure::Condition> conditions_of(ObjectReader& reader, std::string_view key,
                                              FieldErrors& errors) {
  std::vector<failure::Condition> found;
  const nlohmann::json* entries = reader.find(key);
  if (entries == nullptr) return found;
  if (!entries->is_array() || entries->empty() || entries->size() > kMostEntries) {
    reader.error(key, entries, "is not a list of 1 to 32 conditions",
                 "write [{type: DisruptionTarget}]");
    return found;
  }
  for (std::size_t i = 0; i < entries->size(); ++i) {
    ObjectReader entry((*entries)[i], reader.path(key) + "[" + std::to_string(i) + "]", errors);
    failure::Condition& condition = found.emplace_back();
    entry.require("type", "write the type of the condition, such as DisruptionTarget");
    condition.type = entry.string("type", 316).value_or("");
    constexpr std::array<std::string_view, 3> kStatuses{"True", "False", "Unknown"};
    if (const auto status = entry.one_of("status", {kStatuses.begin(), kStatuses.end()}))
      condition.status = kStatuses[*status];
    condition.reason = entry.string("reason", 128).value_or("");
    entry.finish();
  }
  return found;
}

failure::Rule read_rule(const nlohmann::json& value, const std::string& path, FieldErrors& errors) {
  ObjectReader reader(value, path, errors);
  failure::Rule rule;
  reader.require("action", "write FailJob, RestartRank, RestartGang, ReplaceNode or Ignore");
  if (const auto action =
          reader.one_of("action", {failure::kActions.begin(), failure::kActions.end()}))
    rule.action = static_cast<failure::Action>(*action);
  rule.name = reader.string("name", 63).value_or("");
  rule.roles = values_of<std::string>(reader, "roles", errors, plain_word, "is no name of a role",
                                      "write the names of roles of this job");
  rule.exit_codes = values_of<failure::CodeRange>(
      reader, "exitCodes", errors, code_range, "is no exit code or range",
      "write a number from 1 to 255, or a range such as \"64-113\"");
  rule.signals = values_of<int>(reader, "signals", errors, signal_number, "is no signal",
                                "write a name such as SIGSEGV, or a number from 1 to 64");
  rule.reasons = values_of<std::string>(reader, "reasons", errors, plain_word, "is no reason",
                                        "write a reason such as OOMKilled");
  rule.pod_conditions = conditions_of(reader, "podConditions", errors);
  rule.node_conditions = conditions_of(reader, "nodeConditions", errors);
  reader.finish();
  return rule;
}

std::vector<failure::Rule> read_rules(ObjectReader& reader, FieldErrors& errors) {
  std::vector<failure::Rule> rules;
  const nlohmann::json* value = reader.find("rules");
  if (value == nullptr) return rules;
  if (!value->is_array() || value->size() > kMostRules) {
    reader.error("rules", value, "is not a list of at most 20 rules",
                 "write [{exitCodes: [2], action: FailJob}]");
    return rules;
  }
  for (std::size_t i = 0; i < value->size(); ++i)
    rules.push_back(
        read_rule((*value)[i], reader.path("rules") + "[" + std::to_string(i) + "]", errors));
  return rules;
}

}  // namespace

void read_failure_policy(const nlohmann::json& value, FailurePolicy& policy, FieldErrors& errors) {
  ObjectReader reader(value, "spec.failurePolicy", errors);
  if (const auto n = reader.integer("maxRestarts", 0, 10000))
    policy.max_restarts = static_cast<int>(*n);
  if (const auto n = reader.integer("maxDisruptions", 0, 10000))
    policy.max_disruptions = static_cast<int>(*n);
  if (const auto n = reader.integer("spares", 0, kMostSpares)) policy.spares = static_cast<int>(*n);
  if (const auto time = reader.duration("backoff")) policy.backoff = *time;
  if (const auto time = reader.duration("gracePeriod")) policy.grace_period = *time;
  if (const auto time = reader.duration("forceDeleteAfter")) policy.force_delete_after = *time;
  policy.rules = read_rules(reader, errors);
  reader.finish();
}

void add_spares(Spec& spec, FieldErrors& errors) {
  const int spares = spec.failure_policy.spares;
  if (spares == 0 || spec.roles.empty()) return;
  Role& last = spec.roles.back();
  const auto refuse = [&](bool wrong, const std::string& problem, const char* remedy) {
    if (wrong)
      errors.push_back({"spec.failurePolicy.spares", std::to_string(spares), problem, remedy});
  };
  refuse(last.kind != RoleKind::kWorker,
         "are pods of the last role, and role " + last.name + " is of kind " +
             std::string(contract::to_string(last.kind)),
         "write the role of kind Worker last, or remove spares");
  refuse(workers_fail_alone(spec),
         "take places at a restart of all ranks, which this job's "
         "workers do not need: each is replaced alone",
         "remove spares");
  refuse(spec.elastic.has_value(), "cannot be combined with spec.elastic",
         "remove one of them: an elastic job goes on with fewer replicas");
  refuse(replica_count(spec) == 1, "cannot take the place of node rank 0, the job's only replica",
         "remove spares, or give the role more replicas");
  refuse(replica_count(spec) + spares > kMostPods,
         "are too many beside " + std::to_string(replica_count(spec)) + " replicas",
         "write at most 10000 pods in all");
  if (!errors.empty()) return;
  last.replicas += spares;
  last.spares = spares;
}

void remove_spares(Spec& spec) {
  spec.failure_policy.spares = 0;
  for (Role& role : spec.roles) role.replicas -= std::exchange(role.spares, 0);
}

void check_failure_rules(const Spec& spec, FieldErrors& errors) {
  const std::vector<failure::Rule>& rules = spec.failure_policy.rules;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const std::string path = "spec.failurePolicy.rules[" + std::to_string(i) + "]";
    for (std::size_t k = 0; k < rules[i].roles.size(); ++k) {
      const std::string& name = rules[i].roles[k];
      const auto role = std::ranges::find(spec.roles, name, &Role::name);
      if (role == spec.roles.end()) {
        errors.push_back({path + ".roles[" + std::to_string(k) + "]", name,
                          "is no role of this job", "write the name of a role"});
      } else if (rules[i].action == failure::Action::kRestartRank &&
                 !contract::fails_alone(role->kind, workers_fail_alone(spec), false)) {
        errors.push_back({path + ".action", "RestartRank",
                          "cannot restart role " + name + " alone: its peers wait for it",
                          "write RestartGang"});
      }
    }
  }
}

}  // namespace paceline::api
