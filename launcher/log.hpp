// SPDX-License-Identifier: Apache-2.0
// Log: the launcher's own lines, "[paceline] text", each one write. It goes into the log pump's
// pipe while that runs (a full pipe drops the line and counts it, it never blocks the event loop),
// to stderr otherwise. Borrows the descriptor. Thread-safe. Nothing fails.
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
