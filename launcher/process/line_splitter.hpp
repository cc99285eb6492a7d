// SPDX-License-Identifier: Apache-2.0
// LineSplitter: splits a rank's output into whole lines for the log and keeps the last lines for
// the failure report. LogPump has one for each stream; `paceline run` uses it too. Bounded: a line
// above 16 KiB is cut into several, and the last 20 lines are kept, up to 400 bytes each.
//
// Owns its buffers. Not thread-safe. Nothing fails.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::process {

class LineSplitter {
 public:
  explicit LineSplitter(std::string prefix) : prefix_(std::move(prefix)) {}

  /// Returns the lines that `bytes` complete, each with prefix and newline.
  std::string push(std::string_view bytes);
  /// Call at the end of the stream: returns the rest that has no newline, as a line.
  std::string finish();
  std::vector<std::string> last_lines() const { return {last_.begin(), last_.end()}; }

 private:
  void emit(std::string_view line, std::string& out);

  const std::string prefix_;
  std::string partial_;
  std::deque<std::string> last_;
};

}  // namespace paceline::process
