// SPDX-License-Identifier: Apache-2.0
// Launcher: wires the parts of one replica's launcher around one event loop. The parts are the
// member, the ranks, the log pump, the collector, the HTTP endpoint and the signals, and on node
// rank 0 the gang's server. At the end it writes the termination message. main.cpp runs it for
// `paceline-launcher run`.
//
// Ownership: owns all parts and two threads (log pump, ring server), which end in `run`. One
// instance per process, because it waits for all children. Failure: `run` returns an exit code of
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

}  // namespace paceline::launcher
