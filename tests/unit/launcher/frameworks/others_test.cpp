// SPDX-License-Identifier: Apache-2.0
// Frameworks with few variables: JAX, DeepSpeed, MindSpore, BytePS, XGBoost; and Custom.
#include <gtest/gtest.h>

#include "gang.hpp"

namespace paceline::frameworks {
namespace {

TEST(Jax, ProcessesKnowTheCoordinator) {
  const auto table = gang({{"worker", RoleKind::kWorker, 2}}, 2);
  EXPECT_EQ(added(table, 0, setting_of("JAX")),
            (Environment{{"COORDINATOR_ADDRESS", "10.0.0.1"},
                         {"COORDINATOR_PORT", "29502"},
                         {"JAX_COORDINATOR_ADDRESS", "10.0.0.1:29502"},
                         {"JAX_COORDINATOR_BIND_ADDRESS", "10.0.0.1:29502"},
                         {"JAX_NUM_PROCESSES", "2"},
                         {"JAX_PROCESS_ID", "0"},
                         {"NUM_PROCESSES", "2"},
                         {"PROCESS_ID", "0"}}));
  EXPECT_EQ(added(table, 1, setting_of("JAX")),
            (Environment{{"COORDINATOR_ADDRESS", "10.0.0.1"},
                         {"COORDINATOR_PORT", "29502"},
                         {"JAX_COORDINATOR_ADDRESS", "10.0.0.1:29502"},
                         {"JAX_NUM_PROCESSES", "2"},
                         {"JAX_PROCESS_ID", "1"},
                         {"NUM_PROCESSES", "2"},
                         {"PROCESS_ID", "1"}}));
  EXPECT_FALSE(
      added(table, 1, setting_of("JAX"), 0, {{"NUM_PROCESSES", "9"}}).contains("NUM_PROCESSES"));
}

TEST(Jax, ProcessesOfOnePodShareItsDevices) {
  const auto table = gang({{"worker", RoleKind::kWorker, 1, 2}});
  EXPECT_EQ(added(table, 0, setting_of("JAX"), 1).at("JAX_LOCAL_DEVICE_IDS"), "1");
  EXPECT_EQ(added(table, 0, setting_of("JAX"), 1, {{"JAX_LOCAL_DEVICE_IDS", "0,1"}})
                .contains("JAX_LOCAL_DEVICE_IDS"),
            false);
}

TEST(DeepSpeed, IsAsPyTorchWithItsOwnNamesOfThePlace) {
  const auto table = gang({{"worker", RoleKind::kWorker, 2, 2}});
  Environment expected = added(table, 1, setting_of("PyTorch"), 1);
  expected["CROSS_RANK"] = "1";
  expected["CROSS_SIZE"] = "2";
  expected["LOCAL_SIZE"] = "2";
  EXPECT_EQ(added(table, 1, setting_of("DeepSpeed"), 1), expected);
}

TEST(Horovod, RanksMeetAtTheStoreOfRankZerosPod) {
  const auto table =
      gang({{"boss", RoleKind::kCoordinator}, {"worker", RoleKind::kWorker, 2, 2}}, 3);
  auto setting = setting_of("Horovod");
  setting.interface = "eth0";
  EXPECT_EQ(added(table, 2, setting, 1), (Environment{{"HOROVOD_CONTROLLER", "gloo"},
                                                      {"HOROVOD_CPU_OPERATIONS", "gloo"},
                                                      {"HOROVOD_CROSS_RANK", "1"},
                                                      {"HOROVOD_CROSS_SIZE", "2"},
                                                      {"HOROVOD_GLOO_IFACE", "eth0"},
                                                      {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.1"},
                                                      {"HOROVOD_GLOO_RENDEZVOUS_PORT", "29503"},
                                                      {"HOROVOD_HOSTNAME", "worker-1"},
                                                      {"HOROVOD_LOCAL_RANK", "1"},
                                                      {"HOROVOD_LOCAL_SIZE", "2"},
                                                      {"HOROVOD_RANK", "4"},
                                                      {"HOROVOD_SIZE", "5"}}));
  const auto first = added(table, 2, setting);
  EXPECT_EQ(first.at("HOROVOD_CROSS_RANK"), "2");
  EXPECT_EQ(first.at("HOROVOD_CROSS_SIZE"), "3") << "the boss has one process only";
}

TEST(MindSpore, EveryProcessMeetsTheScheduler) {
  const auto table = gang({{"scheduler", RoleKind::kScheduler},
                           {"worker", RoleKind::kWorker, 2, 2},
                           {"ps", RoleKind::kParameterServer}},
                          1);
  Environment expected{{"MS_ROLE", "MS_SCHED"},
                       {"MS_SCHED_HOST", "10.0.0.1"},
                       {"MS_SCHED_PORT", "8119"},
                       {"MS_SERVER_NUM", "1"},
                       {"MS_WORKER_NUM", "4"}};
  EXPECT_EQ(added(table, 0, setting_of("MindSpore")), expected);
  expected["MS_ROLE"] = "MS_PSERVER";
  EXPECT_EQ(added(table, 3, setting_of("MindSpore")), expected);
  expected["MS_ROLE"] = "MS_WORKER";
  expected["MS_NODE_ID"] = "3";
  expected["MS_WORKER_IP"] = "10.0.0.3";
  expected["RANK_ID"] = "3";
  expected["RANK_SIZE"] = "4";
  expected["DEVICE_ID"] = "1";
  EXPECT_EQ(added(table, 2, setting_of("MindSpore"), 1), expected);
}

TEST(MindSpore, MsrunIsToldWhereItsSchedulerIs) {
  const auto table = gang({{"worker", RoleKind::kWorker, 2, 2}});
  EXPECT_EQ(
      added(table, 1, setting_of("MindSpore", true)),
      (Environment{
          {"MS_SCHED_HOST", "10.0.0.1"}, {"MS_SCHED_PORT", "29500"}, {"MS_WORKER_NUM", "4"}}));
}

TEST(BytePs, CountsMachinesAsWorkersAndTheirProcessesApart) {
  const auto table = gang({{"scheduler", RoleKind::kScheduler},
                           {"server", RoleKind::kParameterServer, 2},
                           {"worker", RoleKind::kWorker, 2, 4}});
  auto setting = setting_of("BytePS");
  setting.interface = "eth0";
  Environment expected{{"DMLC_INTERFACE", "eth0"},    {"DMLC_NODE_HOST", "10.0.0.1"},
                       {"DMLC_NUM_SERVER", "2"},      {"DMLC_NUM_WORKER", "2"},
                       {"DMLC_PS_ROOT_PORT", "9600"}, {"DMLC_PS_ROOT_URI", "10.0.0.1"},
                       {"DMLC_ROLE", "scheduler"}};
  EXPECT_EQ(added(table, 0, setting), expected);
  expected["DMLC_ROLE"] = "server";
  expected["DMLC_NODE_HOST"] = "10.0.0.3";
  EXPECT_EQ(added(table, 2, setting), expected);
  expected["DMLC_ROLE"] = "worker";
  expected["DMLC_NODE_HOST"] = "10.0.0.5";
  expected["DMLC_WORKER_ID"] = "1";
  expected["BYTEPS_LOCAL_RANK"] = "2";
  expected["BYTEPS_LOCAL_SIZE"] = "4";
  EXPECT_EQ(added(table, 4, setting, 2), expected);
}

TEST(XgBoost, WorkersKnowTheTrackerInTheOrderOfTheirTasks) {
  const auto table = gang({{"worker", RoleKind::kWorker, 11}});
  EXPECT_EQ(added(table, 7, setting_of("XGBoost")),
            (Environment{{"DMLC_NUM_WORKER", "11"},
                         {"DMLC_TASK_ID", "07"},
                         {"DMLC_TRACKER_PORT", "29500"},
                         {"DMLC_TRACKER_URI", "10.0.0.1"},
                         {"dmlc_task_id", "07"},
                         {"dmlc_tracker_port", "29500"},
                         {"dmlc_tracker_uri", "10.0.0.1"}}));
}

TEST(Custom, HasWhatEveryFrameworkHasAlone) {
  const auto table =
      gang({{"worker", RoleKind::kWorker, 1, 2}, {"ps", RoleKind::kParameterServer}});
  EXPECT_EQ(compose_environment({}, {table, table.nodes[1], setting_of("Custom")}).variables,
            (Environment{{"GROUP_RANK", "1"},
                         {"GROUP_WORLD_SIZE", "1"},
                         {"LOCAL_RANK", "0"},
                         {"LOCAL_WORLD_SIZE", "1"},
                         {"MASTER_ADDR", "10.0.0.1"},
                         {"MASTER_PORT", "29500"},
                         {"OMP_NUM_THREADS", "1"},
                         {"PACELINE_ATTEMPT", "0"},
                         {"PACELINE_NODE_RANK", "1"},
                         {"PACELINE_RANK_TABLE", ""},
                         {"PACELINE_RESTARTS", "0"},
                         {"PACELINE_TELEMETRY_SOCKET", ""},
                         {"PYTHONUNBUFFERED", "1"},
                         {"RANK", "2"},
                         {"WORLD_SIZE", "2"}}));
}

}  // namespace
}  // namespace paceline::frameworks
