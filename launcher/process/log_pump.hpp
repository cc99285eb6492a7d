// SPDX-License-Identifier: Apache-2.0
// LogPump: one thread that reads the pipes of the ranks and of the launcher's log, and writes whole
// lines with a prefix. If the reader of the container's output stalls, the ranks that write stall
// too, as they would without Paceline. The launcher's event loop and its heartbeats go on.
//
// Ownership: owns the read ends given to `add`. All methods are thread-safe; `run` is the thread's
// loop and ends after a stop request, when the pipes are drained. Failure: output that cannot be
// written (closed pipe, full disk) is dropped, so that the ranks go on.
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
#include "common/subprocess/line_splitter.hpp"

namespace paceline::process {

class LogPump {
 public:
  LogPump();

  /// Writes the lines of `read_end` to descriptor `out`, with the prefix. Returns the stream's
  /// number.
  std::uint64_t add(UniqueFd read_end, std::string prefix, int out);
  /// A pipe whose lines are written to stderr as they are. Its end never blocks; invalid if there
  /// is no descriptor left.
  UniqueFd log_pipe();
  /// Waits until the stream ends or the time is over, and returns its last lines. A stream that has
  /// ended is then forgotten.
  std::vector<std::string> last_lines(std::uint64_t stream, std::chrono::milliseconds wait);
  /// Runs until stopped; then writes what is readable at once.
  void run(const std::stop_token& stop);

 private:
  struct Stream {
    std::uint64_t id;
    UniqueFd fd;
    LineSplitter splitter;
    int out;
    bool ended = false;
  };

  /// False if nothing could be read.
  bool read_once(Stream& stream);
  void wake();

  std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<std::shared_ptr<Stream>> streams_;
  std::uint64_t next_ = 1;
  UniqueFd wake_;
};

}  // namespace paceline::process
