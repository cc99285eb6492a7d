// SPDX-License-Identifier: Apache-2.0
// LocalRun: the launchers of one job on this machine as child processes, their output on the
// screen, their summary in the table, their end.
//
// Ownership: owns the children: none outlives `run`, and the kernel ends them should we be killed.
// One per process: it waits for all children. Failure: `run` returns the job's exit code: 0; the
// culprit's own code, or 128 + its signal; 130 or 143 after Ctrl-C or SIGTERM; 1 for anything else.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/run/local_plan.hpp"
#include "cli/run/screen.hpp"
#include "common/base/clock.hpp"
#include "common/base/error.hpp"

namespace paceline::cli {

struct LocalRunConfig {
  std::string job;
  std::string token;
  std::vector<std::uint16_t> http_ports;
  std::chrono::nanoseconds grace{0};
  std::optional<std::chrono::nanoseconds> deadline;
  std::string metrics_host;  // "": not served
  std::uint16_t metrics_port = 0;
};

class LocalRun {
 public:
  LocalRun(LocalRunConfig config, LocalPlan plan, Screen& screen, const Clock& clock);
  ~LocalRun();
  LocalRun(const LocalRun&) = delete;
  LocalRun& operator=(const LocalRun&) = delete;

  Result<int> run();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace paceline::cli
