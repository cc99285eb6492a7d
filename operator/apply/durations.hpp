// SPDX-License-Identifier: Apache-2.0
// Durations: how long something took, as a histogram and the longest one. A plain value; whoever
// keeps it guards it.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>

namespace paceline::apply {

/// `bounds` are upper bounds in seconds; the last bucket has none.
template <const auto& bounds>
struct Durations {
  static constexpr const auto& kBounds = bounds;
  std::array<std::uint64_t, bounds.size() + 1> buckets{};
  double total_s = 0;
  double longest_s = 0;

  void add(std::chrono::nanoseconds took) {
    const double seconds = std::chrono::duration<double>(took).count();
    ++buckets[static_cast<std::size_t>(std::ranges::lower_bound(bounds, seconds) - bounds.begin())];
    total_s += seconds;
    longest_s = std::max(longest_s, seconds);
  }
};

inline constexpr std::array kWorkBounds = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
                                           0.1,    0.2,   0.5,   1.0,   2.0,  5.0,  10.0};
inline constexpr std::array kWaitBounds = {1.0,    5.0,     15.0,    60.0,    300.0,   900.0,
                                           3600.0, 14400.0, 43200.0, 86400.0, 259200.0};

using WorkTimes = Durations<kWorkBounds>;  // of a reconciliation, of a pass of the scheduler
using WaitTimes = Durations<kWaitBounds>;  // of a job for its placement

}  // namespace paceline::apply
