// SPDX-License-Identifier: Apache-2.0
// LocalRun: runs the launchers of one job as child processes of this machine, prints their output,
// shows their summary in a table, and waits for their end.
//
// Ownership: owns the children. None outlives `run`; if this process is killed, the kernel kills
// them. One LocalRun of a process at a time, because it waits for all children.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/run/local_plan.hpp"
#include "cli/run/screen.hpp"
#include "cli/run/view.hpp"
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
  std::uint64_t last_step = 0;  // the run is ended after this many steps; 0: by itself
  nlohmann::json document;      // run_document()
};

struct RunEnd {
  // 0; the culprit's own code, or 128 + its signal; 130 or 143 after Ctrl-C or SIGTERM; 1 for
  // anything else.
  int code = 0;
  JobView view;
  double seconds = 0;
  std::string last_words;     // of rank 0, if the job succeeded
  nlohmann::json document{};  // all that was known at the end
};

class LocalRun {
 public:
  LocalRun(LocalRunConfig config, LocalPlan plan, Screen& screen, const Clock& clock);
  ~LocalRun();
  LocalRun(const LocalRun&) = delete;
  LocalRun& operator=(const LocalRun&) = delete;

  Result<RunEnd> run();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace paceline::cli
