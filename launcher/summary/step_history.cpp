// SPDX-License-Identifier: Apache-2.0
#include "launcher/summary/step_history.hpp"

namespace paceline::summary {

void StepHistory::add(SteadyTime now, double step_seconds) {
  constexpr std::size_t kMost = 256;
  if (step_seconds <= 0) return;
  if (!first_) first_ = now;
  const double at = std::chrono::duration<double>(now - *first_).count();
  if (!points_.empty() && at - points_.back().at < every_.count()) return;
  if (points_.size() >= kMost) {
    for (std::size_t i = 0; 2 * i < points_.size(); ++i) points_[i] = points_[2 * i];
    points_.resize((points_.size() + 1) / 2);
    every_ *= 2;
    if (at - points_.back().at < every_.count()) return;
  }
  points_.push_back({at, step_seconds});
}

}  // namespace paceline::summary
