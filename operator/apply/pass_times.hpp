// SPDX-License-Identifier: Apache-2.0
// PassTimes: how long the scheduler's passes took, as a histogram and the longest one. A plain
// value; whoever keeps it guards it.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>

namespace paceline::apply {

struct PassTimes {
  /// Upper bounds in seconds; the last bucket has none.
  static constexpr std::array<double, 14> kBounds = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
                                                     0.1,    0.2,   0.5,   1,     2,    5,    10};
  std::array<std::uint64_t, kBounds.size() + 1> buckets{};
  double total_s = 0;
  double longest_s = 0;

  void add(std::chrono::nanoseconds took) {
    const double seconds = std::chrono::duration<double>(took).count();
    ++buckets[static_cast<std::size_t>(std::ranges::lower_bound(kBounds, seconds) -
                                       kBounds.begin())];
    total_s += seconds;
    longest_s = std::max(longest_s, seconds);
  }
};

}  // namespace paceline::apply
