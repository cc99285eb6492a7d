// SPDX-License-Identifier: Apache-2.0
// Turns a rank table into the processes of this replica: arguments, environment and CPUs of each
// rank. Launcher calls it at the start of every attempt. Pure.
#pragma once

#include <sys/resource.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/config.hpp"
#include "launcher/frameworks/environment.hpp"
#include "launcher/log.hpp"
#include "launcher/process/rank_set.hpp"
#include "launcher/rendezvous/rank_table.hpp"

namespace paceline::launcher {

/// What is the same in all attempts.
struct RankPlan {
  std::vector<std::string> argv;
  int local_rank_at = -1;               // where --local_rank=N stands in argv; -1: nowhere
  frameworks::Environment environment;  // the container's own environment
  std::string interface;
  fabric::Machine machine;
  fabric::NcclSettings nccl_settings;  // of the user and of the image
  std::string cuda_injection;          // library that the CUDA driver loads; "": none
  std::string telemetry_socket;
  std::string rank_table;
  std::vector<int> allowed_cpus;
  std::vector<std::vector<int>> numa_nodes;
  std::optional<rlimit> open_files;  // limit of the ranks; nullopt: the launcher's own
};

/// Resolves the command and reads what the machine has. Failure: the command contradicts the job.
Result<RankPlan> prepare_ranks(const Config& config, const frameworks::Environment& environment,
                               const std::vector<std::string>& command, Log& log);

/// CPUs that the ranks of this replica share.
int cpus_of(const RankPlan& plan, const Config& config);

/// The first rank of this replica, and how many may follow it.
std::pair<int, int> ranks_of(const Config& config, const rendezvous::Node& own);

struct PlannedRanks {
  std::vector<process::RankSpec> ranks;
  // for the log: list variables and defaults that were changed, and NCCL's settings
  std::vector<std::string> changes;
};

/// Logs the changes unless they are `last`, which they then become.
void log_changes(const PlannedRanks& planned, std::vector<std::string>& last, Log& log);

PlannedRanks plan_ranks(const RankPlan& plan, const Config& config,
                        const rendezvous::RankTable& table, int restarts);

}  // namespace paceline::launcher
