// SPDX-License-Identifier: Apache-2.0
// LogPump: reads the pipes of ranks (and of the launcher's own log) on one thread and writes whole,
// prefixed lines. A reader of our output that stalls stalls the ranks that write, as it would
// without us, but never the launcher's event loop and its heartbeats.
//
// Ownership: owns the read ends given to `add`. All methods are thread-safe; `run` is the thread's
// loop and ends when stopped and drained. Failure: output that cannot be written (closed pipe, full
// disk) is dropped, so that ranks go on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/unique_fd.hpp"
#include "launcher/process/line_splitter.hpp"

namespace paceline::process {

class LogPump {
 public:
  LogPump();

  /// Lines of `read_end` go to descriptor `out`, prefixed. Returns the stream's number.
  std::uint64_t add(UniqueFd read_end, std::string prefix, int out);
  /// Waits until the stream has ended or the time is over, and returns its last lines; the stream
  /// is forgotten when it ended.
  std::vector<std::string> last_lines(std::uint64_t stream, std::chrono::milliseconds wait);
  /// Until stopped; then whatever is readable at once is still written.
  void run(const std::stop_token& stop);

 private:
  struct Stream {
    std::uint64_t id;
    UniqueFd fd;
    LineSplitter splitter;
    int out;
    bool ended = false;
  };

  /// False when nothing was to be read.
  bool read_once(Stream& stream);
  void wake();

  std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<std::shared_ptr<Stream>> streams_;
  std::uint64_t next_ = 1;
  UniqueFd wake_;
};

}  // namespace paceline::process
