// SPDX-License-Identifier: Apache-2.0
#include "common/contract/env.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace paceline::env {
namespace {

TEST(Variables, APersonMaySetSwitchesAndNothingThatTellsTheGangWhoItIs) {
  for (const char* name :
       {"PACELINE_DISABLE", "PACELINE_LIBRARY", "PACELINE_KERNELS", "PACELINE_OPTIMIZER",
        "PACELINE_LOADER", "PACELINE_LOADER_WORKERS", "PACELINE_LOADER_DEVICE_COPIES",
        "PACELINE_COMMUNICATION", "PACELINE_COMMUNICATION_PLAN",
        "PACELINE_COMMUNICATION_COMPRESSION", "PACELINE_SOCKET_IFNAME", "PACELINE_PRECISION",
        "PACELINE_CUDA_GRAPH", "PACELINE_NUMERICS", "PACELINE_SIMD"})
    EXPECT_TRUE(is_users(name)) << name;
  for (const char* name :
       {"PACELINE_ATTEMPT", "PACELINE_TOKEN", "PACELINE_NODE_RANK", "PACELINE_STATE_DIR",
        "PACELINE_OPTIMIZER_", "PACELINE_OPTIMIZE", "paceline_optimizer", "PACELINE_", "PATH", ""})
    EXPECT_FALSE(is_users(name)) << name;
}

TEST(Variables, EveryOneIsListedOnceUnderOurPrefixAndSaysWhatItIs) {
  std::set<std::string> names;
  for (const Variable& variable : kAll) {
    EXPECT_TRUE(variable.name.starts_with("PACELINE_")) << variable.name;
    EXPECT_FALSE(variable.meaning.empty()) << variable.name;
    EXPECT_TRUE(names.emplace(variable.name).second) << variable.name << " is listed twice";
  }
  for (const Variable& variable : kUsers)
    EXPECT_TRUE(names.contains(std::string(variable.name))) << variable.name;
}

}  // namespace
}  // namespace paceline::env
