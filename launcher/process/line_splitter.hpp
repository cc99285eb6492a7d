// SPDX-License-Identifier: Apache-2.0
// LineSplitter: turns a rank's output into whole lines for the log, and remembers the last ones for
// the post-mortem. Pure, bounded: a line longer than 16 KiB is cut into several; 20 lines of at
// most 400 bytes are remembered.
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

  /// The text to write: every line that `bytes` complete, prefixed, each with its newline.
  std::string push(std::string_view bytes);
  /// What is left without a newline, as a line; at the end of the stream.
  std::string finish();
  std::vector<std::string> last_lines() const { return {last_.begin(), last_.end()}; }

 private:
  void emit(std::string_view line, std::string& out);

  const std::string prefix_;
  std::string partial_;
  std::deque<std::string> last_;
};

}  // namespace paceline::process
