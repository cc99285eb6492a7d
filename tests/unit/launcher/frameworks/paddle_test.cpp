// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "gang.hpp"

namespace paceline::frameworks {
namespace {

TEST(Paddle, CollectiveTrainersKnowAllEndpoints) {
  const auto table = gang({{"worker", RoleKind::kWorker, 2, 2}}, 1);
  EXPECT_EQ(added(table, 1, setting_of("PaddlePaddle"), 1),
            (Environment{{"FLAGS_selected_gpus", "1"},
                         {"PADDLE_CURRENT_ENDPOINT", "10.0.0.2:6172"},
                         {"PADDLE_GLOBAL_RANK", "3"},
                         {"PADDLE_GLOBAL_SIZE", "4"},
                         {"PADDLE_JOB_ID", "uid-1"},
                         {"PADDLE_LOCAL_RANK", "1"},
                         {"PADDLE_LOCAL_SIZE", "2"},
                         {"PADDLE_MASTER", "10.0.0.1:29501"},
                         {"PADDLE_NNODES", "2"},
                         {"PADDLE_RANK_IN_NODE", "1"},
                         {"PADDLE_RUN_MODE", "collective"},
                         {"PADDLE_TRAINER_ENDPOINTS",
                          "10.0.0.1:6171,10.0.0.1:6172,10.0.0.2:6171,10.0.0.2:6172"},
                         {"PADDLE_TRAINERS_NUM", "4"},
                         {"PADDLE_TRAINER_ID", "3"},
                         {"POD_IP", "10.0.0.2"}}));
}

TEST(Paddle, ServersAndTrainersKnowEachOther) {
  const auto table =
      gang({{"ps", RoleKind::kParameterServer, 2}, {"worker", RoleKind::kWorker, 2}});
  Environment expected{{"PADDLE_JOB_ID", "uid-1"},
                       {"PADDLE_MASTER", "10.0.0.3:29500"},
                       {"PADDLE_NNODES", "2"},
                       {"PADDLE_PORT", "6170"},
                       {"PADDLE_PSERVERS_IP_PORT_LIST", "10.0.0.1:6170,10.0.0.2:6170"},
                       {"PADDLE_RUN_MODE", "ps"},
                       {"PADDLE_TRAINERS_NUM", "2"},
                       {"PADDLE_TRAINER_ENDPOINTS", "10.0.0.3:6170,10.0.0.4:6170"},
                       {"PADDLE_WITH_GLOO", "0"},
                       {"POD_IP", "10.0.0.2"},
                       {"TRAINING_ROLE", "PSERVER"}};
  EXPECT_EQ(added(table, 1, setting_of("PaddlePaddle")), expected);
  expected["POD_IP"] = "10.0.0.4";
  expected["TRAINING_ROLE"] = "TRAINER";
  expected["PADDLE_TRAINER_ID"] = "1";
  EXPECT_EQ(added(table, 3, setting_of("PaddlePaddle")), expected);
}

TEST(Paddle, TrainersThatAreReplacedAloneAreCalledByName) {
  auto table = gang({{"ps", RoleKind::kParameterServer, 2},
                     {"worker", RoleKind::kWorker, 2},
                     {"heter", RoleKind::kWorker}});
  rendezvous::name_hosts(table, "ads", "ads");
  const auto worker = added(table, 3, setting_of("PaddlePaddle"));
  EXPECT_EQ(worker.at("PADDLE_TRAINER_ENDPOINTS"), "ads-worker-0.ads:6170,ads-worker-1.ads:6170");
  EXPECT_EQ(worker.at("PADDLE_PSERVERS_IP_PORT_LIST"), "10.0.0.1:6170,10.0.0.2:6170")
      << "a lost server restarts the job, with a new table";
  const auto heter = added(table, 4, setting_of("PaddlePaddle"));
  EXPECT_EQ(heter.at("PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST"), "ads-heter-0.ads:6170");
  EXPECT_EQ(heter.at("POD_IP"), "ads-heter-0.ads") << "it looks for itself in the list";
  EXPECT_EQ(added(table, 0, setting_of("PaddlePaddle")).at("POD_IP"), "10.0.0.1");
}

TEST(Paddle, HeterogeneousTrainersAreTheSecondStage) {
  const auto table = gang({{"ps", RoleKind::kParameterServer},
                           {"worker", RoleKind::kWorker, 2},
                           {"heter", RoleKind::kWorker, 2}});
  const auto trainer = added(table, 2, setting_of("PaddlePaddle"));
  const auto heter = added(table, 4, setting_of("PaddlePaddle"));
  EXPECT_EQ(trainer.at("PADDLE_RUN_MODE"), "ps-heter");
  EXPECT_EQ(trainer.at("TRAINING_ROLE"), "TRAINER");
  EXPECT_EQ(trainer.at("PADDLE_TRAINER_ID"), "1");
  EXPECT_EQ(trainer.at("PADDLE_TRAINER_ENDPOINTS"), "10.0.0.2:6170,10.0.0.3:6170");
  EXPECT_EQ(trainer.at("PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST"), "10.0.0.4:6170,10.0.0.5:6170");
  EXPECT_EQ(trainer.at("STAGE_ID"), "1");
  EXPECT_EQ(heter.at("TRAINING_ROLE"), "HETER_TRAINER");
  EXPECT_EQ(heter.at("PADDLE_TRAINER_ID"), "1");
  EXPECT_EQ(heter.at("PADDLE_TRAINERS_NUM"), "2");
  EXPECT_EQ(heter.at("PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST"), "10.0.0.4:6170,10.0.0.5:6170");
  EXPECT_EQ(heter.at("PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST"), "10.0.0.2:6170,10.0.0.3:6170");
  EXPECT_EQ(heter.at("STAGE_ID"), "2");
}

TEST(Paddle, ItsKeptLauncherReadsFlagsAndHasTheMasterPortAlone) {
  const auto table = gang({{"worker", RoleKind::kWorker, 2, 4}});
  const auto& node = table.nodes[1];
  const auto setting = setting_of("PaddlePaddle", true);
  EXPECT_EQ(added(table, 1, setting), (Environment{{"PADDLE_JOB_ID", "uid-1"},
                                                   {"PADDLE_MASTER", "10.0.0.1:29500"},
                                                   {"PADDLE_NNODES", "2"},
                                                   {"PADDLE_NPROC_PER_NODE", "4"},
                                                   {"PADDLE_RANK", "1"},
                                                   {"PADDLE_RUN_MODE", "collective"},
                                                   {"POD_IP", "10.0.0.2"}}));
  EXPECT_FALSE(compose_environment({}, {table, node, setting}).variables.contains("MASTER_ADDR"));
}

TEST(Paddle, ProxiesGoAndDevicesStayUnset) {
  const auto table = gang({{"worker"}});
  const auto setting = setting_of("PaddlePaddle");
  const Environment base{{"http_proxy", "p"}, {"HTTPS_PROXY", "p"}, {"no_proxy", "n"}};
  const auto composed = compose_environment(base, {table, table.nodes[0], setting});
  EXPECT_FALSE(composed.variables.contains("http_proxy"));
  EXPECT_FALSE(composed.variables.contains("HTTPS_PROXY"));
  EXPECT_EQ(composed.variables.at("no_proxy"), "n");
  EXPECT_FALSE(composed.variables.contains("PADDLE_DEVICES"));
  EXPECT_NE(std::ranges::find(composed.changes, "http_proxy unset"), composed.changes.end());
}

}  // namespace
}  // namespace paceline::frameworks
