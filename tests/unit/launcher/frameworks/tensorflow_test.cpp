// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "gang.hpp"

namespace paceline::frameworks {
namespace {

Environment config(const std::string& text) { return {{"TF_CONFIG", text}}; }

TEST(TensorFlow, WorkersOfOneRingAreOneTaskForEachProcess) {
  const auto table = gang({{"worker", RoleKind::kWorker, 2, 2}}, 103);
  EXPECT_EQ(added(table, 1, setting_of("TensorFlow"), 1),
            config(R"({"cluster":{"worker":["10.0.0.1:2225","10.0.0.1:2226",)"
                   R"("10.0.0.2:2225","10.0.0.2:2226"]},"task":{"index":3,"type":"worker"}})"));
}

TEST(TensorFlow, RolesAreTasksByKindAndTheEvaluatorIsNotInTheCluster) {
  const auto table = gang({{"boss", RoleKind::kCoordinator},
                           {"server", RoleKind::kParameterServer, 2},
                           {"worker", RoleKind::kWorker, 2},
                           {"watch", RoleKind::kEvaluator}});
  const std::string cluster =
      R"({"cluster":{"chief":["10.0.0.1:2222"],"ps":["10.0.0.2:2222","10.0.0.3:2222"],)"
      R"("worker":["10.0.0.4:2222","10.0.0.5:2222"]},"task":)";
  const auto setting = setting_of("TensorFlow");
  EXPECT_EQ(added(table, 0, setting), config(cluster + R"({"index":0,"type":"chief"}})"));
  EXPECT_EQ(added(table, 2, setting), config(cluster + R"({"index":1,"type":"ps"}})"));
  EXPECT_EQ(added(table, 4, setting), config(cluster + R"({"index":1,"type":"worker"}})"));
  EXPECT_EQ(added(table, 5, setting), config(cluster + R"({"index":0,"type":"evaluator"}})"));
}

TEST(TensorFlow, OnOneMachineEveryProcessHasAPortOfItsOwn) {
  auto table = gang({{"ps", RoleKind::kParameterServer}, {"worker", RoleKind::kWorker, 2, 2}});
  for (auto& node : table.nodes) node.host = "127.0.0.1";
  table.port_base = 25000;
  EXPECT_EQ(added(table, 0, setting_of("TensorFlow")),
            config(R"({"cluster":{"ps":["127.0.0.1:25004"],"worker":["127.0.0.1:25000",)"
                   R"("127.0.0.1:25001","127.0.0.1:25002","127.0.0.1:25003"]},)"
                   R"("task":{"index":0,"type":"ps"}})"));
}

TEST(TensorFlow, InTheNetworkOfANodeEveryPodHasPortsOfItsOwn) {
  auto table = gang({{"chief", RoleKind::kCoordinator}, {"worker", RoleKind::kWorker, 2, 2}}, 103);
  for (auto& node : table.nodes) node.host = "10.0.0.1";
  table.nodes[1].port_base = 16000;
  table.nodes[2].port_base = 16100;
  EXPECT_EQ(added(table, 2, setting_of("TensorFlow"), 1),
            config(R"({"cluster":{"chief":["10.0.0.1:2225"],"worker":["10.0.0.1:16010",)"
                   R"("10.0.0.1:16011","10.0.0.1:16110","10.0.0.1:16111"]},)"
                   R"("task":{"index":3,"type":"worker"}})"));
}

TEST(TensorFlow, InTheSparseFormAWorkerKnowsTheServersAndItself) {
  const auto table = gang({{"boss", RoleKind::kCoordinator},
                           {"server", RoleKind::kParameterServer, 2},
                           {"worker", RoleKind::kWorker, 2},
                           {"watch", RoleKind::kEvaluator}});
  auto setting = setting_of("TensorFlow");
  setting.tf_config = "Sparse";
  const std::string servers = R"("ps":["10.0.0.2:2222","10.0.0.3:2222"])";
  EXPECT_EQ(added(table, 0, setting), config(R"({"cluster":{"chief":{"0":"10.0.0.1:2222"},)" +
                                             servers + R"(},"task":{"index":0,"type":"chief"}})"));
  EXPECT_EQ(added(table, 2, setting),
            config(R"({"cluster":{"ps":["10.0.0.3:2222"]},"task":{"index":1,"type":"ps"}})"));
  EXPECT_EQ(added(table, 4, setting),
            config(R"({"cluster":{)" + servers +
                   R"(,"worker":{"1":"10.0.0.5:2222"}},"task":{"index":1,"type":"worker"}})"));
  EXPECT_EQ(added(table, 5, setting),
            config(R"({"cluster":{)" + servers + R"(},"task":{"index":0,"type":"evaluator"}})"));
}

TEST(TensorFlow, TheEvaluatorIsInTheClusterIfAskedFor) {
  const auto table = gang({{"worker"}, {"watch", RoleKind::kEvaluator}});
  auto setting = setting_of("TensorFlow");
  setting.tf_config = "WithEvaluator";
  EXPECT_EQ(added(table, 1, setting),
            config(R"({"cluster":{"evaluator":["10.0.0.2:2222"],"worker":["10.0.0.1:2222"]},)"
                   R"("task":{"index":0,"type":"evaluator"}})"));
}

TEST(TensorFlow, AddressesOfIpv6HaveBrackets) {
  auto table = gang({{"worker"}});
  table.nodes[0].host = "fd00::7";
  EXPECT_EQ(
      added(table, 0, setting_of("TensorFlow")),
      config(R"({"cluster":{"worker":["[fd00::7]:2222"]},"task":{"index":0,"type":"worker"}})"));
}

}  // namespace
}  // namespace paceline::frameworks
