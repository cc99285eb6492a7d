// SPDX-License-Identifier: Apache-2.0
// The summary of one rank's steps that rank 0's launcher receives, and the summary of a job that
// status, tables and messages show. Pure values and functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/telemetry/stats/phases.hpp"

namespace paceline::telemetry {

/// The steps of an attempt after its first kWarmSteps, with all that was between them. Memory is
/// allocated in the first steps, and libraries look for their quickest kernels.
struct SettledSteps {
  std::uint64_t steps = 0;
  double seconds = 0;
};
inline constexpr std::uint64_t kWarmSteps = 16;

struct RankSummary {
  int rank = 0;
  int node_rank = 0;
  std::uint64_t step = 0;     // in this attempt
  std::uint64_t steps = 0;    // ever seen
  std::uint64_t samples = 0;  // ever seen
  double p50 = 0;             // seconds, over the window
  double p95 = 0;
  double samples_per_second = 0;  // over the window
  int host_times_of_gpu = 0;      // 1 if a GPU computes, and the phases say what the host did
  PhaseSeconds window{};          // seconds per phase over the last steps
  PhaseSeconds total{};           // seconds per phase ever seen
  SettledSteps settled;
};

/// Shares of the wall time, which add up to 1; all 0 if nothing was measured.
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
  // the slowest rank's own time per step over that of the median rank; 0 if unknown
  double skew = 0;
  std::vector<RankSummary> ranks;
};

enum class Span {
  kWindow,  // the last steps: shown while the job runs
  kTotal,   // all steps: shown at the end
};

/// Combines the ranks' summaries. `ranks` may have any order; the result is ordered by rank.
JobSummary fold(std::vector<RankSummary> ranks, Span span);

}  // namespace paceline::telemetry
