// SPDX-License-Identifier: Apache-2.0
// The files that mpirun reads in the replica that runs it: hostfiles, the launch agent, and what
// the agent needs to reach the launchers of the hosts. They lie in a folder that only the job's
// user can open, because one of them holds the job's token.
//
// Stateless. Failure is an Error that names the file.
#pragma once

#include <filesystem>
#include <string>

#include "launcher/exec/exec_message.hpp"
#include "launcher/rendezvous/rank_table.hpp"

namespace paceline::exec {

struct MpiFiles {
  std::filesystem::path folder;
  std::filesystem::path hostfile() const { return folder / "hostfile"; }        // Open MPI
  std::filesystem::path machinefile() const { return folder / "machinefile"; }  // MPICH, Intel MPI
  std::filesystem::path agent() const { return folder / "agent"; }
  std::filesystem::path hosts() const { return folder / "hosts.json"; }
};

/// The name of a replica for mpirun: `<role>-<index>`. No machine has this name, so mpirun starts
/// all ranks through the agent, also those beside it.
std::string host_name(const rendezvous::Node& node);

/// The replica that runs mpirun: the Launcher, or the pod of rank 0 in a job without one.
const rendezvous::Node& mpirun_node(const rendezvous::RankTable& table);

/// Writes the files for one attempt. `launcher` is the path of paceline-launcher.
Status write_mpi_files(const MpiFiles& files, const std::filesystem::path& launcher,
                       const ExecRequest& request, const rendezvous::RankTable& table);

}  // namespace paceline::exec
