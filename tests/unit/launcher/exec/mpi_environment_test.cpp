// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "launcher/exec/mpi_files.hpp"
#include "launcher/frameworks/mpi.hpp"

namespace paceline::frameworks {
namespace {

MpirunSetting setting(std::vector<std::string> command) {
  return {"/s/hostfile", "/s/machinefile", "/s/agent", "eth0", std::move(command)};
}

TEST(MpiEnvironment, NamesHostfileAndAgentForEachLibrary) {
  Environment variables{{"OMPI_MCA_plm_rsh_agent", "ssh"}, {"PATH", "/bin"}};
  set_mpirun(setting({"mpirun", "./p"}), variables);
  EXPECT_EQ(variables["OMPI_MCA_orte_default_hostfile"], "/s/hostfile");
  EXPECT_EQ(variables["OMPI_MCA_plm_rsh_agent"], "/s/agent");
  EXPECT_EQ(variables["PRTE_MCA_plm_ssh_agent"], "/s/agent");
  EXPECT_EQ(variables["HYDRA_HOST_FILE"], "/s/machinefile");
  EXPECT_EQ(variables["I_MPI_HYDRA_BOOTSTRAP_EXEC"], "/s/agent");
  EXPECT_EQ(variables["OMPI_MCA_btl_tcp_if_include"], "eth0");
  EXPECT_EQ(variables["PATH"], "/bin");
}

TEST(MpiEnvironment, TakesVariablesOfOneReplicaFromMpirun) {
  Environment variables{{"PACELINE_TELEMETRY_SOCKET", "/s/t"}, {"PACELINE_JOB_NAME", "job"}};
  set_mpirun(setting({"mpirun", "./p"}), variables);
  EXPECT_FALSE(variables.contains("PACELINE_TELEMETRY_SOCKET"));
  EXPECT_TRUE(variables.contains("PACELINE_JOB_NAME"));
}

TEST(MpiEnvironment, LeavesTheUsersInterfacesAlone) {
  Environment variables{{"OMPI_MCA_oob_tcp_if_exclude", "lo"}};
  set_mpirun(setting({"mpirun", "--mca", "btl_tcp_if_exclude", "lo", "./p"}), variables);
  EXPECT_FALSE(variables.contains("OMPI_MCA_oob_tcp_if_include"));
  EXPECT_FALSE(variables.contains("OMPI_MCA_btl_tcp_if_include"));
}

TEST(MpiEnvironment, KeepsFilesApartOnlyWhereReplicasShareAMachine) {
  Environment apart;
  set_mpi_host({.threads = 2, .crowded = false, .own_folder = ""}, apart);
  EXPECT_EQ(apart["OMP_NUM_THREADS"], "2");
  EXPECT_FALSE(apart.contains("OMPI_MCA_orte_tmpdir_base"));
  Environment shared;
  set_mpi_host({.threads = 1, .crowded = true, .own_folder = "/s"}, shared);
  EXPECT_EQ(shared["OMPI_MCA_orte_tmpdir_base"], "/s");
  EXPECT_EQ(shared["OMPI_MCA_mpi_yield_when_idle"], "1");
}

TEST(MpirunNode, IsTheLauncherOrElseThePodOfRankZero) {
  rendezvous::Node launcher;
  launcher.node_rank = 0;
  launcher.kind = contract::RoleKind::kLauncher;
  rendezvous::Node worker;
  worker.node_rank = 1;
  worker.role = "worker";
  EXPECT_EQ(exec::mpirun_node(rendezvous::make_rank_table(0, 1, {launcher, worker})).node_rank, 0);
  worker.node_rank = 0;
  const auto workers = rendezvous::make_rank_table(0, 1, {worker});
  EXPECT_EQ(exec::host_name(exec::mpirun_node(workers)), "worker-0");
}

}  // namespace
}  // namespace paceline::frameworks
