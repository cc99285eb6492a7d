// SPDX-License-Identifier: Apache-2.0
#include "launcher/trace/steps_to_trace.hpp"

#include <algorithm>
#include <cmath>

namespace paceline::traces {
namespace {

// The profiler warms up during the step before the first one, which must not have begun.
constexpr std::uint64_t kLeastAhead = 2;
constexpr double kShortestStep = 1e-4;

}  // namespace

std::optional<TracePlan> plan_trace(const std::vector<RankPace>& ranks, std::uint64_t steps,
                                    std::chrono::duration<double> telling) {
  std::uint64_t newest = 0;
  double quickest = 0;
  double slowest = 0;
  for (const RankPace& rank : ranks) {
    newest = std::max(newest, rank.step);
    if (rank.step_seconds <= 0) continue;
    quickest = quickest == 0 ? rank.step_seconds : std::min(quickest, rank.step_seconds);
    slowest = std::max(slowest, rank.step_seconds);
  }
  if (newest == 0) return std::nullopt;
  std::uint64_t ahead = kLeastAhead;
  if (quickest > 0)
    ahead +=
        static_cast<std::uint64_t>(std::ceil(telling.count() / std::max(quickest, kShortestStep)));
  return TracePlan{newest + ahead, static_cast<double>(ahead + steps) * slowest};
}

}  // namespace paceline::traces
