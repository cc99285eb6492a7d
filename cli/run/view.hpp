// SPDX-License-Identifier: Apache-2.0
// What rank 0's launcher reports about the job (its /v1/summary and its report), and how a terminal
// shows it. Pure.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/telemetry/stats/summary.hpp"

namespace paceline::cli {

struct RankRow {
  int rank = 0;
  int node_rank = 0;
  std::uint64_t step = 0;
  double p50 = 0;
  double p95 = 0;
  double samples_per_second = 0;
  telemetry::PhaseSeconds shares{};
  telemetry::SettledSteps settled;
};

struct JobView {
  std::string phase;  // or the verdict
  int attempt = 0;
  int restarts = 0;
  std::uint64_t step = 0;
  std::uint64_t steps = 0;
  double samples_per_second = 0;
  double tokens_per_second = 0;  // 0: not counted
  std::optional<double> mfu;
  std::optional<double> goodput;                       // useful time over all time
  std::vector<std::pair<std::string, double>> losses;  // seconds of the rest, by use
  double p50 = 0;
  double p95 = 0;
  telemetry::PhaseSeconds shares{};
  std::string bottleneck = "unknown";
  std::optional<int> slowest_rank;
  std::string message;
  std::optional<int> culprit_exit_code;
  std::optional<int> culprit_signal;
  std::vector<RankRow> ranks;
  std::vector<std::string> acted;  // a line for each feature of the runtime, as rank 0 tells it
};

/// Reads a summary, a report or a termination message. Missing fields keep their defaults.
JobView read_view(const nlohmann::json& document);

/// The table of a running job: a head line and one row per rank (at most 16, the slowest marked).
/// No line is longer than `width`.
std::vector<std::string> live_table(const std::string& job, const JobView& view, std::size_t width);

/// One line for logs and pipes.
std::string live_line(const JobView& view);

/// The table at the end: steps, samples/s, share of each phase, slowest rank, what acted.
std::string final_table(const std::string& job, const JobView& view, double seconds);

}  // namespace paceline::cli
