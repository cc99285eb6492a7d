// SPDX-License-Identifier: Apache-2.0
#include "launcher/diagnosis/finding.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "common/base/duration.hpp"

namespace paceline::diagnosis {

std::string_view to_string(Kind kind) {
  constexpr std::array<std::string_view, 7> kNames{
      "failure", "hang", "mismatch", "straggler", "regression", "processor", "bottleneck"};
  return kNames[static_cast<std::size_t>(kind)];
}

GainRange at_most(double share) {
  // The same bound as in paceline/_core/predict.py, so that it is finite.
  constexpr double kMostShare = 0.99;
  return {0, 1 / (1 - std::clamp(share, 0.0, kMostShare)) - 1};
}

std::string shown_seconds(double seconds) {
  return format_duration(std::chrono::nanoseconds(std::llround(std::max(0.0, seconds) * 1e9)));
}

std::string shown_share(double share) {
  return std::to_string(std::lround(std::clamp(share, 0.0, 1.0) * 100)) + " %";
}

std::string shown_rank(int rank, const std::string& node) {
  return "rank " + std::to_string(rank) + (node.empty() ? "" : " on " + node);
}

}  // namespace paceline::diagnosis
