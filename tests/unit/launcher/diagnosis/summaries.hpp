// SPDX-License-Identifier: Apache-2.0
// Summaries of ranks whose steps are known, for tests of the diagnosis.
#pragma once

#include <map>

#include "common/telemetry/stats/summary.hpp"

namespace paceline::diagnosis::test {

inline constexpr int kData = PACELINE_PHASE_DATA_WAIT;
inline constexpr int kForward = PACELINE_PHASE_FORWARD;
inline constexpr int kBackward = PACELINE_PHASE_BACKWARD;
inline constexpr int kComm = PACELINE_PHASE_COMM_EXPOSED;
inline constexpr int kOther = PACELINE_PHASE_OTHER;
inline constexpr int kUnattributed = PACELINE_PHASE_UNATTRIBUTED;
inline constexpr int kEvaluation = PACELINE_PHASE_EVALUATION;
inline constexpr int kCheckpoint = PACELINE_PHASE_CHECKPOINT;

using Phases = std::map<int, double>;  // phase → seconds of a step

/// What a rank has measured after `steps` steps of these phases.
inline telemetry::RankSummary after_steps(int rank, double steps, const Phases& step) {
  telemetry::RankSummary summary;
  summary.rank = rank;
  summary.step = summary.steps = static_cast<std::uint64_t>(steps);
  summary.settled.steps = summary.steps;
  for (const auto& [phase, seconds] : step) {
    summary.total[static_cast<std::size_t>(phase)] = seconds * steps;
    summary.p50 += seconds;
  }
  summary.window = summary.total;
  summary.p95 = summary.p50;
  summary.samples_per_second = summary.p50 > 0 ? 32 / summary.p50 : 0;
  return summary;
}

inline telemetry::LiveState live(int phase, double seconds, std::uint64_t collective = 0,
                                 std::uint64_t group = 0) {
  return {.phase = static_cast<std::size_t>(phase),
          .seconds = seconds,
          .step = 7,
          .silent = 0.5,
          .collective = collective,
          .group = group};
}

}  // namespace paceline::diagnosis::test
