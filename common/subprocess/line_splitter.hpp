// SPDX-License-Identifier: Apache-2.0
// LineSplitter: turns a rank's output into whole lines for the log, and remembers the last lines
// for the post-mortem. A line above 16 KiB is cut into several. It remembers 20 lines of at most
// 400 bytes.
//
// Owns its buffers. Not thread-safe. Nothing here fails.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::process {

class LineSplitter {
 public:
  explicit LineSplitter(std::string prefix) : prefix_(std::move(prefix)) {}

  /// The text to write: every line that `bytes` completes, with the prefix and its newline.
  std::string push(std::string_view bytes);
  /// At the end of the stream: the rest that has no newline, as a line.
  std::string finish();
  std::vector<std::string> last_lines() const { return {last_.begin(), last_.end()}; }

 private:
  void emit(std::string_view line, std::string& out);

  const std::string prefix_;
  std::string partial_;
  std::deque<std::string> last_;
};

}  // namespace paceline::process
