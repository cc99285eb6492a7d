// SPDX-License-Identifier: Apache-2.0
// The environment of mpirun and of the daemons that it starts in other replicas, for Open MPI 4 and
// 5, MPICH and Intel MPI. Pure. docs/reference/frameworks.md lists the variables.
#pragma once

#include <string>
#include <vector>

#include "launcher/frameworks/environment.hpp"

namespace paceline::frameworks {

struct MpirunSetting {
  std::string hostfile;     // Open MPI's form
  std::string machinefile;  // the form of MPICH and Intel MPI
  std::string agent;
  std::string interface;             // network interface of this pod's address; "" if unknown
  std::vector<std::string> command;  // the user's, whose flags have precedence
};

/// For the process that runs mpirun. MPICH hands its whole environment to all ranks, so variables
/// that describe one replica are removed.
void set_mpirun(const MpirunSetting& setting, Environment& variables);

struct MpiHostSetting {
  int threads = 1;       // for OMP_NUM_THREADS
  bool crowded = false;  // the replica has more ranks than CPUs
  // for the library's files, if other replicas of the job are on this machine too; else ""
  std::string own_folder;
};

/// For the daemons of mpirun and the ranks, which inherit it.
void set_mpi_host(const MpiHostSetting& setting, Environment& variables);

}  // namespace paceline::frameworks
