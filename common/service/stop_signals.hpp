// SPDX-License-Identifier: Apache-2.0
// StopSignals: SIGTERM and SIGINT as something to wait for, for programs whose main thread has
// nothing else to do.
//
// Made in `main` before any thread: threads inherit the mask, so that only `wait` sees the two
// signals. SIGPIPE is ignored for good, since a peer that went away is an error of one write, not
// the end of the process. One per process, never undone. Nothing here fails.
#pragma once

#include <csignal>

namespace paceline {

class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Blocks until one of them arrives and says which.
  int wait() const;

 private:
  sigset_t set_{};
};

}  // namespace paceline
