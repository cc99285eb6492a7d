// SPDX-License-Identifier: Apache-2.0
// From a rank table to the processes of this replica: argument list, environment and CPUs of each
// rank. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/config.hpp"
#include "launcher/frameworks/environment.hpp"
#include "launcher/process/rank_set.hpp"
#include "launcher/rendezvous/rank_table.hpp"

namespace paceline::launcher {

/// What stays the same over all attempts.
struct RankPlan {
  std::vector<std::string> argv;
  frameworks::Environment environment;  // as the container was given it
  std::string interface;
  std::string telemetry_socket;
  std::string rank_table;
  std::vector<int> allowed_cpus;
  std::vector<std::vector<int>> numa_nodes;
};

struct PlannedRanks {
  std::vector<process::RankSpec> ranks;
  std::string changes;  // of lists and defaults, for one log line
};

PlannedRanks plan_ranks(const RankPlan& plan, const Config& config,
                        const rendezvous::RankTable& table, int restarts);

}  // namespace paceline::launcher
