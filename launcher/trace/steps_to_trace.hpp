// SPDX-License-Identifier: Apache-2.0
// Which steps a trace has, by what the ranks say that they do now. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace paceline::traces {

struct RankPace {
  std::uint64_t step = 0;   // the current one
  double step_seconds = 0;  // 0: unknown
};

struct TracePlan {
  std::uint64_t start_step = 0;
  double seconds = 0;  // until the slowest rank should be done
};

/// The first step lies so far ahead that every rank hears of it before, if telling all of them
/// takes `telling`. nullopt if no rank has marked a step.
std::optional<TracePlan> plan_trace(const std::vector<RankPace>& ranks, std::uint64_t steps,
                                    std::chrono::duration<double> telling);

}  // namespace paceline::traces
