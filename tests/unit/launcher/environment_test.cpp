// SPDX-License-Identifier: Apache-2.0
#include "launcher/frameworks/environment.hpp"

#include <gtest/gtest.h>

#include "launcher/frameworks/list_variable.hpp"

namespace paceline::frameworks {
namespace {

RankPlace place() { return {5, 1, 8, 4, 1, 2, "worker", 3, 2, 7, "uid-1", "10.0.0.1", 29503}; }
RankSetting setting() {
  return {false, 6, 2, "/opt/paceline", "/run/table", "/run/sock", "/run/failed", "eth0"};
}

TEST(ListVariable, PrependsOnceAndKeepsWhatWasThere) {
  EXPECT_EQ(prepend({"/a", "/b"}, ""), "/a:/b");
  EXPECT_EQ(prepend({"/a"}, "/x:/y"), "/a:/x:/y");
  EXPECT_EQ(prepend({"/a", "/b"}, "/x:/b:/a"), "/a:/b:/x");
  EXPECT_EQ(prepend({"/a"}, "/x::/y"), "/a:/x::/y");
}

TEST(Environment, RankVariablesComeFromTheTable) {
  const auto variables =
      compose_environment({{"RANK", "99"}, {"MASTER_ADDR", "stale"}}, place(), setting()).variables;
  EXPECT_EQ(variables.at("RANK"), "5");
  EXPECT_EQ(variables.at("LOCAL_RANK"), "1");
  EXPECT_EQ(variables.at("WORLD_SIZE"), "8");
  EXPECT_EQ(variables.at("LOCAL_WORLD_SIZE"), "4");
  EXPECT_EQ(variables.at("GROUP_RANK"), "1");
  EXPECT_EQ(variables.at("MASTER_ADDR"), "10.0.0.1");
  EXPECT_EQ(variables.at("MASTER_PORT"), "29503");
  EXPECT_EQ(variables.at("TORCHELASTIC_RESTART_COUNT"), "2");
  EXPECT_EQ(variables.at("PACELINE_ATTEMPT"), "3");
  EXPECT_EQ(variables.at("PACELINE_RANK_TABLE"), "/run/table");
  EXPECT_FALSE(variables.contains("PET_NNODES"));
  EXPECT_FALSE(variables.contains("TORCHELASTIC_USE_AGENT_STORE"));
}

TEST(Environment, OnlyAnInjectedRankIsToldWhereToSayThatItFails) {
  EXPECT_EQ(compose_environment({}, place(), setting()).variables.at("PACELINE_FAILURE_FILE"),
            "/run/failed");
  const Environment off{{"PACELINE_DISABLE", "1"}};
  EXPECT_FALSE(
      compose_environment(off, place(), setting()).variables.contains("PACELINE_FAILURE_FILE"));
}

TEST(Environment, TheSecretDoesNotReachTheProgram) {
  EXPECT_FALSE(compose_environment({{"PACELINE_TOKEN", "s"}}, place(), setting())
                   .variables.contains("PACELINE_TOKEN"));
}

TEST(Environment, WhatTheUserHasSetStays) {
  const auto composed = compose_environment(
      {{"OMP_NUM_THREADS", "3"}, {"NCCL_SOCKET_IFNAME", "ib0"}, {"PYTHONPATH", "/mine"}}, place(),
      setting());
  EXPECT_EQ(composed.variables.at("OMP_NUM_THREADS"), "3");
  EXPECT_EQ(composed.variables.at("NCCL_SOCKET_IFNAME"), "ib0");
  EXPECT_EQ(composed.variables.at("GLOO_SOCKET_IFNAME"), "eth0");
  EXPECT_EQ(composed.variables.at("PYTHONPATH"),
            "/opt/paceline/python/site:/opt/paceline/python:/mine");
  EXPECT_EQ(composed.changes.size(), 3U);  // PYTHONUNBUFFERED, GLOO_SOCKET_IFNAME, PYTHONPATH
}

TEST(Environment, GpuDirectIsTurnedOffWhereAskedAndNotSetOtherwise) {
  EXPECT_FALSE(
      compose_environment({}, place(), setting()).variables.contains("NCCL_NET_GDR_LEVEL"));
  auto off = setting();
  off.gpu_direct_off = true;
  EXPECT_EQ(compose_environment({}, place(), off).variables.at("NCCL_NET_GDR_LEVEL"), "LOC");
  EXPECT_EQ(compose_environment({{"NCCL_NET_GDR_LEVEL", "PXB"}}, place(), off)
                .variables.at("NCCL_NET_GDR_LEVEL"),
            "PXB");
}

TEST(Environment, TheKillSwitchKeepsEverythingOut) {
  const auto composed =
      compose_environment({{"PACELINE_DISABLE", "1"}, {"PYTHONPATH", "/mine"}}, place(), setting());
  EXPECT_EQ(composed.variables.at("PYTHONPATH"), "/mine");
}

TEST(Environment, PassthroughSpeaksToTorchrunOnly) {
  auto kept = setting();
  kept.passthrough = true;
  kept.processes = 4;
  const auto variables = compose_environment({}, place(), kept).variables;
  EXPECT_FALSE(variables.contains("RANK"));
  EXPECT_EQ(variables.at("PET_NNODES"), "2");
  EXPECT_EQ(variables.at("PET_NODE_RANK"), "1");
  EXPECT_EQ(variables.at("PET_MASTER_PORT"), "29503");
  EXPECT_EQ(variables.at("PET_MAX_RESTARTS"), "0");
  EXPECT_EQ(variables.at("PET_NPROC_PER_NODE"), "4");
  EXPECT_EQ(compose_environment({{"PET_NPROC_PER_NODE", "gpu"}}, place(), kept)
                .variables.at("PET_NPROC_PER_NODE"),
            "gpu");
}

TEST(Environment, ThreadsAreDividedAndNeverNone) {
  EXPECT_EQ(threads_per_rank(16, 4), 4);
  EXPECT_EQ(threads_per_rank(2, 4), 1);
  EXPECT_EQ(threads_per_rank(0, 0), 1);
}

}  // namespace
}  // namespace paceline::frameworks
