// SPDX-License-Identifier: Apache-2.0
// What a replica starts in one attempt: its ranks. In an MPI job that is mpirun in one replica, and
// in all of them the shell for mpirun's commands (docs/designs/mpi.md). Launcher calls it at the
// start of every attempt.
#pragma once

#include <vector>

#include "common/base/error.hpp"
#include "common/subprocess/spawn.hpp"
#include "launcher/config.hpp"
#include "launcher/rank_plan.hpp"
#include "launcher/rendezvous/failure.hpp"
#include "launcher/rendezvous/rank_table.hpp"

namespace paceline::launcher {

struct StartPlan {
  PlannedRanks ranks;           // in an MPI job mpirun, or nothing
  process::SpawnRequest shell;  // runs a command of mpirun, given as its last argument
};

/// Writes the files that ranks and mpirun read. Failure: a file cannot be written, or the command
/// contradicts the job.
Result<StartPlan> plan_start(const RankPlan& plan, const Config& config,
                             const rendezvous::RankTable& table, int restarts);

/// The ranks that this replica, which stands by, would start if it stood in for the last node rank.
/// On another one they differ in their numbers only. Writes nothing.
std::vector<process::RankSpec> plan_stand_in(const RankPlan& plan, const Config& config,
                                             rendezvous::RankTable table);

/// What the gang hears of ranks that could not be started.
rendezvous::Failure failure_to_start(const Error& error);

}  // namespace paceline::launcher
