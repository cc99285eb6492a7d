// SPDX-License-Identifier: Apache-2.0
// Regression: whether steps take longer than the job's own steps did before.
//
// The baseline is the median of six windows, and no window counts that is about as slow as the
// slowest of them. So a job whose steps differ by nature raises no alarm. When six later windows
// are all quicker, they become the baseline: a change has made the job faster. The baseline
// outlives restarts, since a restart may move the job to a slower node.
//
// Owns a bounded list of windows. Not thread-safe. Nothing fails.
#pragma once

#include <deque>
#include <optional>

#include "launcher/diagnosis/finding.hpp"
#include "launcher/diagnosis/window.hpp"

namespace paceline::diagnosis {

class Regression {
 public:
  static constexpr std::size_t kBaseline = 6;
  static constexpr double kRatio = 1.1;
  /// Windows that are quicker by less are luck, which would make the baseline shorter and shorter.
  static constexpr double kQuicker = 0.95;
  /// Windows up to this ratio are as slow as the slowest of the baseline.
  static constexpr double kAsSlow = 1.02;

  /// Judges the next window of the job.
  std::optional<Finding> add(const Windows& windows);
  /// The job has other ranks now.
  void forget() { *this = {}; }

 private:
  struct JobWindow {
    double seconds = 0;                // of a step
    telemetry::PhaseSeconds phases{};  // of a step, seconds
  };

  static JobWindow job_window(const Windows& windows);
  Finding finding(const JobWindow& now) const;

  std::deque<JobWindow> recent_;
  std::optional<JobWindow> baseline_;
  double limit_ = 0;
};

}  // namespace paceline::diagnosis
