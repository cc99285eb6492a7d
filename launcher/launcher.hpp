// SPDX-License-Identifier: Apache-2.0
// Launcher: the parts of one replica's launcher wired together around one event loop: member (and
// on node rank 0 the gang's server), ranks, log pump, collector, HTTP endpoint, signals, and at the
// end the termination message.
//
// Ownership: owns all parts and two threads (log pump, ring server), which end in `run`. One
// instance per process: it waits for all children. Failure: `run` returns the exit code of
// contract/labels.hpp; the reason is in the log and in the termination message.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.hpp"
#include "launcher/config.hpp"
#include "launcher/log.hpp"

namespace paceline::launcher {

class Launcher {
 public:
  Launcher(Config config, frameworks::Environment environment, std::vector<std::string> command,
           const Clock& clock, Log& log);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  int run();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Writes a termination message for a replica that could not even begin; returns the exit code for
/// it.
int refuse(const std::string& termination_log, const std::string& message, Log& log);

}  // namespace paceline::launcher
