// SPDX-License-Identifier: Apache-2.0
// What a rank tells rank 0's launcher about its steps, and how a job's ranks fold into the one
// summary that status, tables and messages show. Pure values and functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/telemetry/stats/phases.hpp"

namespace paceline::telemetry {

struct RankSummary {
  int rank = 0;
  int node_rank = 0;
  std::uint64_t step = 0;     // in this attempt
  std::uint64_t steps = 0;    // ever seen
  std::uint64_t samples = 0;  // ever seen
  double p50 = 0;             // seconds, over the window
  double p95 = 0;
  double samples_per_second = 0;  // over the window
  PhaseSeconds window{};          // seconds per phase over the last steps
  PhaseSeconds total{};           // seconds per phase ever seen
};

/// Shares of the wall time, summing to 1; all 0 where nothing was measured.
PhaseSeconds shares(const PhaseSeconds& seconds);

struct JobSummary {
  std::uint64_t step = 0;
  std::uint64_t steps = 0;
  double samples_per_second = 0;
  double p50 = 0;
  double p95 = 0;
  PhaseSeconds breakdown{};  // shares
  std::string_view bottleneck = "unknown";
  int slowest_rank = -1;
  double skew = 0;  // the slowest rank's own time per step over the median rank's; 0 where unknown
  std::vector<RankSummary> ranks;
};

enum class Span {
  kWindow,  // the last steps: what is shown while it runs
  kTotal,   // everything: what is shown at the end
};

/// `ranks` in any order; the result holds them by rank.
JobSummary fold(std::vector<RankSummary> ranks, Span span);

}  // namespace paceline::telemetry
