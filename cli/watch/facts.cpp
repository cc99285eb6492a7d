// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/facts.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "cli/watch/lenient.hpp"
#include "cli/watch/text.hpp"
#include "common/base/timestamp.hpp"

namespace paceline::cli {
namespace {

using lenient::member;
using nlohmann::json;
using telemetry::kPhases;

// A job has at most 10,000 replicas.
constexpr std::size_t kMostRanks = 100'000;
constexpr std::size_t kMostEntries = 256;
constexpr std::size_t kMostText = 8192;
constexpr double kMostNumber = 1e15;

std::string word(const json& value) {
  return value.is_string()
             ? clean(std::string_view(value.get_ref<const std::string&>()).substr(0, kMostText))
             : std::string();
}
std::string word(const json& object, const char* key) { return word(member(object, key)); }

std::optional<double> real(const json& value) {
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  return std::isfinite(number) && std::abs(number) < kMostNumber ? std::optional(number)
                                                                 : std::nullopt;
}

/// A number that is not below zero.
std::optional<double> amount(const json& object, const char* key) {
  const auto number = real(member(object, key));
  return number && *number >= 0 ? number : std::nullopt;
}

std::optional<double> share(const json& object, const char* key) {
  const auto number = amount(object, key);
  return number && *number <= 1 ? number : std::nullopt;
}

std::optional<int> whole_at(const json& object, const char* key) {
  const auto number = real(member(object, key));
  return number && std::abs(*number) <= 1e9 ? std::optional(static_cast<int>(*number))
                                            : std::nullopt;
}

std::optional<WallTime> time_at(const json& object, const char* key) {
  const auto time = parse_time(word(object, key));
  return time ? std::optional(*time) : std::nullopt;
}

/// Calls `take` for the first entries of a list; for nothing if it is none.
template <typename Take>
void each(const json& list, std::size_t most, Take take) {
  if (!list.is_array()) return;
  for (std::size_t i = 0; i < std::min(list.size(), most); ++i) take(list[i]);
}

telemetry::PhaseSeconds shares_at(const json& object) {
  telemetry::PhaseSeconds shares{};
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    shares[phase] = share(object, std::string(telemetry::phase_name(phase)).c_str()).value_or(0);
  return shares;
}

std::optional<DeviceFact> read_device(const json& object) {
  if (!member(object, "breakdown").is_object()) return std::nullopt;
  return DeviceFact{shares_at(member(object, "breakdown")), share(object, "idle")};
}

Finding read_finding(const json& entry) {
  Finding finding{
      word(entry, "kind"), whole_at(entry, "rank"), word(entry, "node"), time_at(entry, "since"),
      word(entry, "text"), word(entry, "advice"),   std::nullopt};
  const json& gain = member(entry, "gain");
  if (gain.is_array() && gain.size() == 2) {
    const auto low = real(gain[0]);
    const auto high = real(gain[1]);
    if (low && high && *low >= 0 && *low <= *high) finding.gain = {*low, *high};
  }
  return finding;
}

std::optional<GoodputFact> read_goodput(const json& object) {
  const auto ratio = share(object, "ratio");
  if (!ratio) return std::nullopt;
  GoodputFact goodput{*ratio, amount(object, "seconds").value_or(0), {}};
  const json& losses = member(object, "losses");
  if (losses.is_object()) {
    for (const auto& [name, seconds] : losses.items()) {
      const auto lost = real(seconds);
      if (lost && *lost > 0 && goodput.losses.size() < kMostEntries)
        goodput.losses.emplace_back(clean(name), *lost);
    }
  }
  std::ranges::stable_sort(goodput.losses, std::greater<>(),
                           &std::pair<std::string, double>::second);
  return goodput;
}

std::optional<CulpritFact> read_culprit(const json& object) {
  if (!object.is_object() || object.empty()) return std::nullopt;
  CulpritFact culprit{whole_at(object, "rank"),     word(object, "pod"),
                      whole_at(object, "exitCode"), whole_at(object, "signal"),
                      word(object, "class"),        {}};
  if (culprit.pod.empty()) culprit.pod = word(object, "podName");
  each(member(object, "lastLines"), 64,
       [&](const json& line) { culprit.last_lines.push_back(word(line)); });
  return culprit;
}

RankFact read_rank(const json& entry) {
  const json& times = member(entry, "stepSeconds");
  return {whole_at(entry, "rank").value_or(0),
          whole_at(entry, "nodeRank").value_or(0),
          static_cast<std::uint64_t>(amount(entry, "step").value_or(0)),
          amount(times, "p50").value_or(0),
          amount(times, "p95").value_or(0),
          amount(entry, "samplesPerSecond").value_or(0),
          shares_at(member(entry, "breakdown")),
          read_device(member(entry, "device"))};
}

void read_training(const json& training, JobFacts& facts) {
  facts.step = static_cast<std::uint64_t>(amount(training, "step").value_or(0));
  facts.p50 = amount(member(training, "stepSeconds"), "p50").value_or(0);
  facts.p95 = amount(member(training, "stepSeconds"), "p95").value_or(0);
  facts.samples_per_second = amount(training, "samplesPerSecond").value_or(0);
  facts.tokens_per_second = amount(training, "tokensPerSecond");
  facts.mfu = share(training, "mfu");
  facts.shares = shares_at(member(training, "breakdown"));
  facts.device = read_device(member(training, "device"));
  facts.bottleneck = word(training, "bottleneck");
  if (facts.bottleneck == "unknown") facts.bottleneck.clear();
  facts.slowest_rank = whole_at(training, "slowestRank");
  each(member(training, "ranks"), kMostRanks, [&](const json& entry) {
    if (entry.is_object()) facts.rank_rows.push_back(read_rank(entry));
  });
  each(member(training, "history"), kMostEntries * 16, [&](const json& entry) {
    const auto at = amount(entry, "at");
    const auto seconds = amount(entry, "stepSeconds");
    const bool later = facts.history.empty() || (at && *at >= facts.history.back().at);
    if (at && seconds && later) facts.history.push_back({*at, *seconds});
  });
}

void read_lists(const json& document, JobFacts& facts) {
  each(member(document, "findings"), kMostEntries, [&](const json& entry) {
    if (Finding finding = read_finding(entry); !finding.text.empty())
      facts.findings.push_back(std::move(finding));
  });
  each(member(document, "effects"), kMostEntries, [&](const json& entry) {
    const json& kept = member(entry, "kept");
    EffectFact effect{word(entry, "feature"), kept.is_boolean() && kept.get<bool>(),
                      real(member(entry, "gain")), word(entry, "reason")};
    if (!effect.feature.empty()) facts.effects.push_back(std::move(effect));
  });
  each(member(document, "conditions"), kMostEntries, [&](const json& entry) {
    facts.conditions.push_back({word(entry, "type"), word(entry, "status") == "True",
                                word(entry, "reason"), word(entry, "message"),
                                time_at(entry, "lastTransitionTime")});
  });
  each(member(document, "nodes"), kMostRanks,
       [&](const json& entry) { facts.nodes.push_back(word(entry)); });
  each(member(document, "excludedNodes"), kMostEntries, [&](const json& entry) {
    facts.excluded_nodes.emplace_back(word(entry, "name"), word(entry, "message"));
  });
  each(member(document, "missing"), kMostRanks, [&](const json& entry) {
    if (const auto rank = real(entry)) facts.missing.push_back(static_cast<int>(*rank));
  });
}

}  // namespace

const ConditionFact* JobFacts::condition(std::string_view type) const {
  const auto found = std::ranges::find(conditions, type, &ConditionFact::type);
  return found == conditions.end() ? nullptr : &*found;
}

JobFacts read_facts(const json& document) {
  JobFacts facts;
  facts.name_space = word(document, "namespace");
  facts.name = word(document, "name");
  facts.phase = word(document, "phase");
  facts.reason = word(document, "reason");
  facts.message = word(document, "message");
  facts.ranks = whole_at(document, "ranks").value_or(0);
  facts.replicas = whole_at(document, "replicas").value_or(0);
  facts.ready = whole_at(document, "ready").value_or(0);
  facts.attempt = whole_at(document, "attempt").value_or(0);
  facts.restarts = whole_at(document, "restarts").value_or(0);
  facts.started = time_at(document, "startTime");
  facts.completed = time_at(document, "completionTime");
  facts.goodput = read_goodput(member(document, "goodput"));
  facts.culprit = read_culprit(member(document, "culprit"));
  if (const json& settings = member(document, "acceleration"); settings.is_object()) {
    for (const auto& [name, value] : settings.items()) {
      if (value.is_string()) facts.settings.emplace_back(clean(name), word(value));
    }
  }
  read_lists(document, facts);
  read_training(member(document, "training"), facts);
  return facts;
}

}  // namespace paceline::cli
