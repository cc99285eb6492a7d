// SPDX-License-Identifier: Apache-2.0
// What is known of one job, whatever the source: the status of a TrainingJob, the summary of rank
// 0's launcher, or the report of a local run. `document.hpp` joins the sources into one JSON
// document; this reads it.
//
// Pure values. The document comes from users' programs, so reading is lenient and bounded: a field
// of the wrong type reads as absent, a number that cannot be is absent too, and every text is
// clean (text.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/clock.hpp"
#include "common/telemetry/stats/phases.hpp"

namespace paceline::cli {

struct Finding {
  std::string kind;  // bottleneck, hang, straggler, regression, …
  std::optional<int> rank;
  std::string node;
  std::optional<WallTime> since;
  std::string text;
  std::string advice;
  std::optional<std::pair<double, double>> gain;
};

struct EffectFact {
  std::string feature;
  bool kept = false;
  std::optional<double> gain;
  std::string reason;
};

struct ConditionFact {
  std::string type;
  bool holds = false;
  std::string reason;
  std::string message;
  std::optional<WallTime> since;
};

/// The device's own partition of a step.
struct DeviceFact {
  telemetry::PhaseSeconds shares{};
  std::optional<double> idle;
};

struct RankFact {
  int rank = 0;
  int node_rank = 0;
  std::uint64_t step = 0;
  double p50 = 0;  // seconds; 0: not measured
  double p95 = 0;
  double samples_per_second = 0;
  telemetry::PhaseSeconds shares{};
  std::optional<DeviceFact> device;
};

struct GoodputFact {
  double ratio = 0;
  double seconds = 0;                                  // wall time since the first start
  std::vector<std::pair<std::string, double>> losses;  // seconds, largest first
};

struct CulpritFact {
  std::optional<int> rank;
  std::string pod;
  std::optional<int> exit_code;
  std::optional<int> signal;
  std::string kind;  // Exit, Signal, OOMKilled, …
  std::vector<std::string> last_lines;
};

/// Step times over the life of the job, oldest first.
struct HistoryPoint {
  double at = 0;  // seconds since the first point
  double step_seconds = 0;
};

struct JobFacts {
  std::string name_space;  // "": a local run
  std::string name;
  std::string phase;
  std::string reason;
  std::string message;
  int ranks = 0;
  int replicas = 0;
  int ready = 0;
  int attempt = 0;
  int restarts = 0;
  std::optional<WallTime> started;
  std::optional<WallTime> completed;
  std::uint64_t step = 0;
  double p50 = 0;
  double p95 = 0;
  double samples_per_second = 0;
  std::optional<double> tokens_per_second;
  std::optional<double> mfu;
  std::optional<GoodputFact> goodput;
  telemetry::PhaseSeconds shares{};
  std::optional<DeviceFact> device;
  std::string bottleneck;  // "": unknown
  std::optional<int> slowest_rank;
  std::vector<Finding> findings;
  std::vector<EffectFact> effects;
  std::vector<std::pair<std::string, std::string>> settings;  // of acceleration
  std::vector<ConditionFact> conditions;
  std::vector<std::string> nodes;
  std::vector<std::pair<std::string, std::string>> excluded_nodes;  // name and why
  std::optional<CulpritFact> culprit;
  std::vector<int> missing;  // node ranks
  std::vector<RankFact> rank_rows;
  std::vector<HistoryPoint> history;

  const ConditionFact* condition(std::string_view type) const;
  bool finished() const { return phase == "Succeeded" || phase == "Failed"; }
};

JobFacts read_facts(const nlohmann::json& document);

}  // namespace paceline::cli
