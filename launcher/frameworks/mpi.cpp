// SPDX-License-Identifier: Apache-2.0
#include "launcher/frameworks/mpi.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "common/contract/env.hpp"

namespace paceline::frameworks {
namespace {

constexpr std::array kOfOneReplica{env::kRole,
                                   env::kRoleKind,
                                   env::kStartStage,
                                   env::kReplicaIndex,
                                   env::kNodeRank,
                                   env::kIncarnation,
                                   env::kPodName,
                                   env::kPodIp,
                                   env::kNodeName,
                                   env::kCpuLimit,
                                   env::kRendezvousListen,
                                   env::kPortBase,
                                   env::kHttpListen,
                                   env::kStateDir,
                                   env::kSlotDir,
                                   env::kTerminationLog,
                                   env::kTelemetrySocket,
                                   env::kFailureFile,
                                   env::kEffectsFile,
                                   env::kNetwork,
                                   env::kProcessesPerReplica};

bool mentions(const MpirunSetting& setting, const Environment& variables, std::string_view word) {
  return std::ranges::any_of(setting.command,
                             [&](const auto& part) { return part.contains(word); }) ||
         std::ranges::any_of(variables,
                             [&](const auto& entry) { return entry.first.contains(word); });
}

void set_open_mpi(const MpirunSetting& setting, Environment& variables) {
  const auto set = [&](const char* name, const std::string& value) {
    variables.insert_or_assign(name, value);
  };
  for (const std::string prefix : {"OMPI", "PRTE"}) {
    variables.try_emplace(prefix + "_ALLOW_RUN_AS_ROOT", "1");
    variables.try_emplace(prefix + "_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
  }
  // The daemons stay in the foreground, so that the launchers see how they end. mpirun starts all
  // of them itself, because only its replica has the agent.
  set("OMPI_MCA_orte_default_hostfile", setting.hostfile);
  set("OMPI_MCA_plm_rsh_agent", setting.agent);
  set("OMPI_MCA_plm_rsh_no_tree_spawn", "1");
  set("OMPI_MCA_orte_leave_session_attached", "1");
  set("OMPI_MCA_orte_keep_fqdn_hostnames", "true");
  set("OMPI_MCA_opal_if_do_not_resolve", "1");
  set("PRTE_MCA_prte_default_hostfile", setting.hostfile);
  set("PRTE_MCA_plm_ssh_agent", setting.agent);
  set("PRTE_MCA_plm_ssh_no_tree_spawn", "1");
  set("PRTE_MCA_prte_leave_session_attached", "1");
  set("PRTE_MCA_prte_keep_fqdn_hostnames", "true");
  set("PRTE_MCA_prte_do_not_resolve", "1");
  // Pods of a node share its CPUs: mpirun in each of them would bind ranks to the same ones.
  variables.try_emplace("OMPI_MCA_hwloc_base_binding_policy", "none");
  variables.try_emplace("PRTE_MCA_hwloc_default_binding_policy", "none");
  if (setting.interface.empty()) return;
  if (!mentions(setting, variables, "prte_if_"))
    variables.try_emplace("PRTE_MCA_prte_if_include", setting.interface);
  // Open MPI refuses to include and exclude interfaces at the same time.
  for (const std::string which : {"oob_tcp", "btl_tcp"}) {
    if (!mentions(setting, variables, which + "_if_"))
      variables.try_emplace("OMPI_MCA_" + which + "_if_include", setting.interface);
  }
}

void set_hydra(const MpirunSetting& setting, Environment& variables) {
  variables.insert_or_assign("HYDRA_HOST_FILE", setting.machinefile);
  variables.insert_or_assign("HYDRA_LAUNCHER", "rsh");
  variables.insert_or_assign("HYDRA_LAUNCHER_EXEC", setting.agent);
  variables.insert_or_assign("I_MPI_HYDRA_HOST_FILE", setting.machinefile);
  variables.insert_or_assign("I_MPI_HYDRA_BOOTSTRAP", "rsh");
  variables.insert_or_assign("I_MPI_HYDRA_BOOTSTRAP_EXEC", setting.agent);
  // No tree of daemons, for the same reason as above.
  variables.insert_or_assign("I_MPI_HYDRA_BRANCH_COUNT", "-1");
  // Daemons connect to mpirun by an address, since names of pods do not resolve in other pods.
  if (setting.interface.empty()) return;
  variables.try_emplace("HYDRA_IFACE", setting.interface);
  variables.try_emplace("I_MPI_HYDRA_IFACE", setting.interface);
}

}  // namespace

void set_mpirun(const MpirunSetting& setting, Environment& variables) {
  for (const env::Variable& variable : kOfOneReplica) variables.erase(std::string(variable.name));
  set_open_mpi(setting, variables);
  set_hydra(setting, variables);
}

void set_mpi_host(const MpiHostSetting& setting, Environment& variables) {
  variables.try_emplace("OMP_NUM_THREADS", std::to_string(setting.threads));
  for (const std::string prefix : {"OMPI", "PRTE"}) {
    variables.try_emplace(prefix + "_ALLOW_RUN_AS_ROOT", "1");
    variables.try_emplace(prefix + "_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
  }
  // A rank that waits for a message must let the others compute.
  if (setting.crowded) variables.try_emplace("OMPI_MCA_mpi_yield_when_idle", "1");
  // Open MPI names its files by the machine and by the rank's number on its host, so that two hosts
  // on one machine would use the same ones.
  if (!setting.own_folder.empty()) {
    for (const char* name : {"OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_btl_vader_backing_directory",
                             "PRTE_MCA_prte_tmpdir_base", "OMPI_MCA_btl_sm_backing_directory"})
      variables.insert_or_assign(name, setting.own_folder);
  }
  // The launcher here does not know these ranks, so it would not read the files.
  variables.erase(std::string(env::kFailureFile.name));
  variables.erase(std::string(env::kEffectsFile.name));
}

}  // namespace paceline::frameworks
