// SPDX-License-Identifier: Apache-2.0
#include "operator/status/training.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <utility>

#include "common/base/duration.hpp"
#include "common/base/excerpt.hpp"
#include "common/base/timestamp.hpp"
#include "operator/status/goodput.hpp"

namespace paceline::status {
namespace {

using nlohmann::json;

const json& child(const json& object, const char* key) {
  static const json kNull;
  if (!object.is_object()) return kNull;
  const auto it = object.find(key);
  return it == object.end() ? kNull : *it;
}

std::string text(const json& object, const char* key, std::size_t max) {
  const json& value = child(object, key);
  if (!value.is_string()) return "";
  return excerpt(value.get_ref<const std::string&>(), max);
}

std::optional<double> real(const json& object, const char* key) {
  const json& value = child(object, key);
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  return std::isfinite(number) && number >= 0 && number < 9e15 ? std::optional(number)
                                                               : std::nullopt;
}

int small(const json& object, const char* key) {
  return static_cast<int>(std::min(real(object, key).value_or(0), 1e6));
}

std::optional<std::vector<int>> missing_of(const json& source) {
  const json& list = child(source, "missing");
  // In a gang with spares a member may be missing whose place is taken.
  const int empty = small(source, "expected") - small(source, "gathered");
  if (!list.is_array() || std::cmp_less(list.size(), empty)) return std::nullopt;
  std::vector<int> ranks;
  for (const json& rank : list) {
    if (!rank.is_number_integer()) return std::nullopt;
    ranks.push_back(
        static_cast<int>(std::clamp<std::int64_t>(rank.get<std::int64_t>(), -1, 1'000'000)));
  }
  return ranks;
}

/// Shares in thousandths; null if there are none.
json shares_of(const json& shares) {
  json read;
  if (!shares.is_object()) return read;
  for (const auto& [phase, share] : shares.items()) {
    if (!share.is_number() || phase.size() > 64 || read.size() >= 32) continue;
    const double value = share.get<double>();
    if (std::isfinite(value)) read[phase] = std::lround(std::clamp(value, 0.0, 1.0) * 1000);
  }
  return read;
}

json training_of(const json& source) {
  if (!source.is_object() || real(source, "step").value_or(0) < 1)
    return {};  // before the first step there is nothing to report
  json training = json::object();
  if (const auto step = real(source, "step")) training["step"] = static_cast<std::int64_t>(*step);
  if (const auto rate = real(source, "samplesPerSecond"))
    training["samplesPerSecond"] = std::llround(*rate);
  if (const auto rate = real(source, "tokensPerSecond"))
    training["tokensPerSecond"] = std::llround(*rate);
  if (const auto share = real(source, "mfu"); share && *share <= 1)
    training["mfu"] = std::lround(*share * 1000);
  for (const char* quantile : {"p50", "p95"}) {
    const auto seconds = real(child(source, "stepSeconds"), quantile);
    if (seconds && *seconds < 1e9)
      training["stepTime"][quantile] =
          format_duration(std::chrono::nanoseconds(std::llround(*seconds * 1e9)));
  }
  if (json shares = shares_of(child(source, "breakdown")); !shares.is_null())
    training["breakdown"] = std::move(shares);
  const json& device = child(source, "device");
  if (json shares = shares_of(child(device, "breakdown")); !shares.is_null())
    training["device"]["breakdown"] = std::move(shares);
  if (const auto idle = real(device, "idle"))
    training["device"]["idle"] = std::lround(std::min(*idle, 1.0) * 1000);
  if (std::string name = text(source, "bottleneck", 64); !name.empty())
    training["bottleneck"] = std::move(name);
  if (const auto rank = real(source, "slowestRank"))
    training["slowestRank"] = static_cast<int>(std::min(*rank, 1e6));
  return training;
}

json culprit_of(const json& source) {
  if (!source.is_object()) return {};
  json culprit = json::object();
  for (const char* key : {"rank", "exitCode", "signal"}) {
    if (child(source, key).is_number_integer())
      culprit[key] = std::clamp<std::int64_t>(source[key].get<std::int64_t>(), -1, 1000000);
  }
  if (std::string pod = text(source, "podName", 253); !pod.empty()) culprit["pod"] = std::move(pod);
  if (std::string kind = text(source, "class", 64); !kind.empty())
    culprit["class"] = std::move(kind);
  if (std::string rule = text(source, "rule", 256); !rule.empty())
    culprit["rule"] = std::move(rule);
  const json& lines = child(source, "lastLines");
  if (lines.is_array()) {
    json kept = json::array();
    const std::size_t skip = lines.size() > 20 ? lines.size() - 20 : 0;
    for (std::size_t i = skip; i < lines.size(); ++i) {
      if (lines[i].is_string()) kept.push_back(text({{"line", lines[i]}}, "line", 512));
    }
    if (!kept.empty()) culprit["lastLines"] = std::move(kept);
  }
  return culprit.empty() ? json() : culprit;
}

json effects_of(const json& source) {
  if (!source.is_array()) return {};
  json effects = json::array();
  for (const json& entry : source) {
    std::string feature = text(entry, "feature", 64);
    const json& kept = child(entry, "kept");
    if (feature.empty() || !kept.is_boolean() || effects.size() >= 16) continue;
    json& effect = effects.emplace_back(json{{"feature", std::move(feature)}, {"kept", kept}});
    if (const json& gain = child(entry, "gain"); gain.is_number()) {
      const double ratio = gain.get<double>();
      if (std::isfinite(ratio) && std::abs(ratio) < 1e6)
        effect["gain"] = std::llround(ratio * 1000);
    }
    if (std::string reason = text(entry, "reason", 256); !reason.empty())
      effect["reason"] = std::move(reason);
  }
  return effects;
}

json findings_of(const json& source) {
  if (!source.is_array()) return {};
  json findings = json::array();
  for (const json& entry : source) {
    std::string kind = text(entry, "kind", 32);
    std::string what = text(entry, "text", 512);
    if (kind.empty() || what.empty() || findings.size() >= 8) continue;
    json& finding =
        findings.emplace_back(json{{"kind", std::move(kind)}, {"text", std::move(what)}});
    if (child(entry, "rank").is_number_integer())
      finding["rank"] = std::clamp<std::int64_t>(entry["rank"].get<std::int64_t>(), 0, 10'000'000);
    if (std::string node = text(entry, "node", 253); !node.empty())
      finding["node"] = std::move(node);
    if (std::string advice = text(entry, "advice", 512); !advice.empty())
      finding["advice"] = std::move(advice);
    if (const auto since = parse_time(text(entry, "since", 32)))
      finding["since"] = format_time(*since);
    const json& gain = child(entry, "gain");
    if (!gain.is_array() || gain.size() != 2) continue;
    for (const json& bound : gain) {
      if (!bound.is_number() || !std::isfinite(bound.get<double>())) return {};
      finding["gain"].push_back(std::lround(std::clamp(bound.get<double>(), -1.0, 1e3) * 1000));
    }
  }
  return findings.empty() ? json() : findings;
}

json checkpoint_of(const json& source) {
  const auto step = real(source, "lastStep");
  if (!step) return {};
  return {{"lastStep", static_cast<std::int64_t>(*step)}, {"attempt", small(source, "attempt")}};
}

}  // namespace

std::optional<Report> read_report(std::string_view text_form) {
  const json value = json::parse(text_form, nullptr, false);
  if (!value.is_object() || child(value, "version") != 1) return std::nullopt;
  Report report;
  report.verdict = text(value, "verdict", 64);
  report.phase = text(value, "phase", 64);
  report.message = text(value, "message", 2048);
  report.attempt = small(value, "attempt");
  report.restarts = small(value, "restarts");
  report.complete = small(value, "gathered") >= small(value, "expected");
  report.missing = missing_of(value);
  report.training = training_of(child(value, "training"));
  report.goodput = goodput_of(child(value, "goodput"));
  report.checkpoint = checkpoint_of(child(value, "checkpoint"));
  report.culprit = culprit_of(child(value, "culprit"));
  report.effects = effects_of(child(value, "effects"));
  report.findings = findings_of(child(value, "findings"));
  return report;
}

bool notable(const json& before, const json& now) {
  const bool had = before.is_object() && before.value("step", std::int64_t{0}) > 0;
  const bool has = now.is_object() && now.value("step", std::int64_t{0}) > 0;
  if (!has) return false;
  return !had || before.value("bottleneck", "") != now.value("bottleneck", "");
}

bool other_findings(const json& before, const json& now) {
  const auto subjects = [](const json& findings) {
    std::set<std::pair<json, json>> all;
    for (const json& finding : findings)
      all.emplace(child(finding, "kind"), child(finding, "rank"));
    return all;
  };
  return subjects(before) != subjects(now);
}

json later_checkpoint(const json& kept, const json& reported) {
  if (reported.is_null() || kept.is_null()) return reported.is_null() ? kept : reported;
  const auto order = [](const json& checkpoint) {
    return std::pair(small(checkpoint, "attempt"), real(checkpoint, "lastStep"));
  };
  return order(reported) < order(kept) ? kept : reported;
}

}  // namespace paceline::status
