// SPDX-License-Identifier: Apache-2.0
// Screen: lines of logs above, a table that is redrawn below them; without a terminal only lines.
// Owns nothing but its memory of what is drawn. Not thread-safe. Output that cannot be written is
// dropped.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "cli/run/view.hpp"
#include "common/base/clock.hpp"

namespace paceline::cli {

class Screen {
 public:
  Screen(std::string job, bool terminal, const Clock& clock)
      : job_(std::move(job)), terminal_(terminal), clock_(clock) {}

  /// Whole lines, each with its newline.
  void write(const std::string& lines, bool to_stderr);
  /// Redraws the table; without a terminal, prints a line at most every 5 s and at changes of the
  /// phase.
  void show(const JobView& view);
  /// Takes the table away for good.
  void clear();

 private:
  void erase();
  void draw();

  const std::string job_;
  const bool terminal_;
  const Clock& clock_;
  std::vector<std::string> table_;
  std::size_t drawn_ = 0;
  std::string last_phase_;
  SteadyTime next_line_{};
};

}  // namespace paceline::cli
