// SPDX-License-Identifier: Apache-2.0
// Log: the launcher's own lines, "[paceline] text", each written by one call. While the log pump
// runs, lines go into its pipe; if the pipe is full, the line is dropped and counted, so that
// logging never blocks the event loop. Otherwise lines go to stderr.
//
// Borrows the descriptor. Thread-safe. Nothing fails.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace paceline::launcher {

class Log {
 public:
  void use(int fd) { fd_ = fd; }
  void line(std::string_view text) {
    std::string whole = "[paceline] ";
    whole += text;
    whole += '\n';
    if (::write(fd_, whole.data(), whole.size()) < 0) ++dropped_;
  }
  std::uint64_t dropped() const { return dropped_; }

 private:
  std::atomic<int> fd_{STDERR_FILENO};
  std::atomic<std::uint64_t> dropped_{0};
};

}  // namespace paceline::launcher
