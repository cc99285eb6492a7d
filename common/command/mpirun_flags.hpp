// SPDX-License-Identifier: Apache-2.0
// The flags of mpirun and mpiexec that a job decides: number of ranks, hosts, and how processes
// reach other hosts. Knows Open MPI's, MPICH's and Intel MPI's. Pure.
#pragma once

#include <string>
#include <vector>

#include "common/base/error.hpp"

namespace paceline::frameworks {

/// Whether this program is mpirun, mpiexec or one of their other names.
bool is_mpirun(const std::string& program);

/// Refuses flags that name hosts, or another way to reach them than Paceline's. Any other command
/// passes.
Status check_mpirun_flags(const std::vector<std::string>& argv);

/// Refuses a number of ranks that is not the job's, and an empty command. A command other than
/// mpirun passes, as it may be a script that calls mpirun.
Status check_mpirun_ranks(const std::vector<std::string>& argv, int ranks);

}  // namespace paceline::frameworks
