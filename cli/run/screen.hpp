// SPDX-License-Identifier: Apache-2.0
// Screen: prints log lines and redraws a table below them. Without a terminal it prints only lines.
// Owns only its memory of what is drawn. Not thread-safe. Output that cannot be written is dropped.
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

  /// `lines` are whole lines, each with its newline.
  void write(const std::string& lines, bool to_stderr);
  /// Redraws the table. Without a terminal, prints a line at most every 5 s and when the phase
  /// changes.
  void show(const JobView& view);
  /// Removes the table for good.
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
