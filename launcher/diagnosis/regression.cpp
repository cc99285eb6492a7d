// SPDX-License-Identifier: Apache-2.0
#include "launcher/diagnosis/regression.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "launcher/diagnosis/advice.hpp"

namespace paceline::diagnosis {

Regression::JobWindow Regression::job_window(const Windows& windows) {
  JobWindow job;
  job.seconds = median_of(windows, step_seconds);
  for (std::size_t phase = 0; phase < telemetry::kPhases; ++phase)
    job.phases[phase] = median_of(
        windows, [phase](const RankWindow& each) { return each.phases[phase] / each.steps; });
  return job;
}

std::optional<Finding> Regression::add(const Windows& windows) {
  if (windows.empty()) return std::nullopt;
  const JobWindow now = job_window(windows);
  recent_.push_back(now);
  if (recent_.size() > kBaseline) recent_.pop_front();
  if (recent_.size() == kBaseline) {
    std::deque<JobWindow> ordered = recent_;
    std::ranges::sort(ordered, {}, &JobWindow::seconds);
    const JobWindow& middle = ordered[(kBaseline - 1) / 2];
    const double slowest = ordered.back().seconds;
    if (!baseline_ || slowest < kQuicker * baseline_->seconds) {
      baseline_ = middle;
      limit_ = std::max(kRatio * middle.seconds, kAsSlow * slowest);
    }
  }
  if (!baseline_ || now.seconds <= limit_) return std::nullopt;
  return finding(now);
}

Finding Regression::finding(const JobWindow& now) const {
  std::size_t grown = PACELINE_PHASE_UNATTRIBUTED;
  double most = 0;
  for (std::size_t phase = 0; phase < telemetry::kPhases; ++phase) {
    const double by = now.phases[phase] - baseline_->phases[phase];
    if (phase == PACELINE_PHASE_EVALUATION || phase == PACELINE_PHASE_CHECKPOINT || by <= most)
      continue;
    most = by;
    grown = phase;
  }
  std::array<char, 32> ratio{};
  (void)std::snprintf(ratio.data(), ratio.size(), "%.2f", now.seconds / baseline_->seconds);
  Finding finding{.kind = Kind::kRegression};
  finding.text = "A step takes " + shown_seconds(now.seconds) + ", " + ratio.data() +
                 " times as long as this job's steps did before (" +
                 shown_seconds(baseline_->seconds) + "); " +
                 std::string(telemetry::phase_name(grown)) + " grew most, by " +
                 shown_seconds(most) + ".";
  finding.advice = advice_for_phase(grown, "");
  finding.gain = at_most(1 - baseline_->seconds / now.seconds);
  return finding;
}

}  // namespace paceline::diagnosis
