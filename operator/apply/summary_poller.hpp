// SPDX-License-Identifier: Apache-2.0
// SummaryPoller: reads the summaries of running jobs from rank 0's launchers, and tells these which
// nodes may soon be lost, apart from the workers that reconcile. A launcher that does not answer (a
// NetworkPolicy, a dead node) blocks a poller for a second or two, and is asked less and less
// often.
//
// Clock, source and `on_answer` must outlive it. Thread-safe. `on_answer` is called without locks
// held; its report is nullopt if a read that was asked for by `hurry` failed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "common/base/clock.hpp"
#include "common/base/error.hpp"
#include "operator/apply/warnings/warned_nodes.hpp"
#include "operator/status/training.hpp"

namespace paceline::apply {

/// Rank 0's launcher.
struct Launcher {
  std::string ip;  // of its pod
  std::uint16_t port = 0;
  std::string token;     // of the job
  Warnings warned = {};  // nodes that it is to be told of
};

/// Reads a job's summary from rank 0's launcher, as JSON. If there are warned nodes, it tells of
/// them first. Blocks for at most a few seconds.
using SummarySource = std::function<Result<std::string>(const Launcher& launcher)>;

class SummaryPoller {
 public:
  using Answer = std::function<void(const std::string& uid, std::optional<status::Report> report)>;
  struct Target {
    Launcher launcher;
    std::chrono::nanoseconds interval{};
  };

  SummaryPoller(const Clock& clock, SummarySource source, Answer on_answer);

  /// Reads the job's summary at once and then at the interval. A known job keeps its turn, unless
  /// other nodes are warned.
  void watch(const std::string& uid, Target target);
  void forget(const std::string& uid);
  /// Reads it as soon as possible; false if the job is not watched.
  bool hurry(const std::string& uid);
  /// Reads one summary that is due; false if none is.
  bool poll_one();
  /// Reads summaries as they become due. Several threads may run it.
  void run(const std::stop_token& stop);

 private:
  struct Job {
    Target target;
    SteadyTime due{};
    int failures = 0;
    bool hurried = false;
    bool busy = false;
  };
  using Jobs = std::map<std::string, Job>;
  Jobs::iterator next();

  const Clock& clock_;
  const SummarySource source_;
  const Answer on_answer_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  Jobs jobs_;  // by UID
};

}  // namespace paceline::apply
