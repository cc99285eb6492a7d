// SPDX-License-Identifier: Apache-2.0
// What a replica of an MPI job starts in one attempt: the shell for commands of mpirun, and in one
// replica mpirun itself (docs/designs/mpi.md). Launcher calls it at the start of every attempt.
#pragma once

#include "common/base/error.hpp"
#include "common/subprocess/spawn.hpp"
#include "launcher/config.hpp"
#include "launcher/rank_plan.hpp"
#include "launcher/rendezvous/rank_table.hpp"

namespace paceline::launcher {

struct MpiPlan {
  PlannedRanks ranks;           // mpirun, or nothing
  process::SpawnRequest shell;  // runs a command of mpirun, given as its last argument
};

/// `ranks` are those of a kept launcher: one process. Writes the files that mpirun reads. Failure:
/// a file cannot be written, or the command contradicts the job.
Result<MpiPlan> plan_mpi(PlannedRanks ranks, const RankPlan& plan, const Config& config,
                         const rendezvous::RankTable& table);

}  // namespace paceline::launcher
