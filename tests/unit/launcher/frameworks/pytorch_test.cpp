// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "gang.hpp"

namespace paceline::frameworks {
namespace {

TEST(PyTorch, RanksReadWhatTorchrunSets) {
  const auto table = gang({{"chief", RoleKind::kCoordinator}, {"worker", RoleKind::kWorker, 2, 2}});
  auto setting = setting_of("PyTorch");
  setting.max_restarts = 3;
  EXPECT_EQ(added(table, 1, setting, 1), (Environment{{"ROLE_NAME", "worker"},
                                                      {"ROLE_RANK", "2"},
                                                      {"ROLE_WORLD_SIZE", "5"},
                                                      {"TORCHELASTIC_MAX_RESTARTS", "3"},
                                                      {"TORCHELASTIC_RESTART_COUNT", "0"},
                                                      {"TORCHELASTIC_RUN_ID", "uid-1"}}));
}

TEST(PyTorch, ThePodOfRankZeroIsTheFirstOfTorchrunWhateverTheOrderOfRoles) {
  const auto table = gang({{"worker", RoleKind::kWorker, 2, 2}, {"chief", RoleKind::kCoordinator}});
  const auto variables = added(table, 2, setting_of("PyTorch", true));
  EXPECT_EQ(variables.at("PET_NODE_RANK"), "0");
  EXPECT_EQ(variables.at("PET_NNODES"), "3");
  EXPECT_EQ(variables.at("PET_MASTER_ADDR"), "10.0.0.3");
}

TEST(PyTorch, AKeptTorchrunCanMeetByC10d) {
  const auto table = gang({{"worker", RoleKind::kWorker, 2, 4}}, 3);
  EXPECT_EQ(added(table, 1, setting_of("PyTorch", true)),
            (Environment{{"PET_MASTER_ADDR", "10.0.0.1"},
                         {"PET_MASTER_PORT", "29503"},
                         {"PET_MAX_RESTARTS", "0"},
                         {"PET_NNODES", "2"},
                         {"PET_NODE_RANK", "1"},
                         {"PET_NPROC_PER_NODE", "4"},
                         {"PET_RDZV_ENDPOINT", "10.0.0.1:29503"},
                         {"PET_RDZV_ID", "uid-1-3"}}));
}

}  // namespace
}  // namespace paceline::frameworks
