// SPDX-License-Identifier: Apache-2.0
// StopSignals: lets the main thread of a program wait for SIGTERM or SIGINT.
//
// Make it in `main` before any thread starts: threads inherit the signal mask, so that only `wait`
// receives the two signals. It also ignores SIGPIPE, so that a closed connection fails one write
// instead of ending the process. One per process, never undone. Nothing here fails.
#pragma once

#include <csignal>

namespace paceline {

class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Blocks until one of the two signals arrives, and returns it.
  int wait() const;

 private:
  sigset_t set_{};
};

}  // namespace paceline
