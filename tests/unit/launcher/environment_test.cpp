// SPDX-License-Identifier: Apache-2.0
#include "launcher/frameworks/environment.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "launcher/frameworks/list_variable.hpp"
#include "launcher/rendezvous/json_forms.hpp"

namespace paceline::frameworks {
namespace {

// The second rank of the second pod, whose first rank is 4.
struct Rank {
  rendezvous::RankTable table;
  RankSetting setting;
  operator Process() const { return {table, table.nodes[1], setting, 1, 2}; }
};

Rank rank() {
  rendezvous::Node first;
  first.role = "worker";
  first.address = "10.0.0.1";
  first.processes = 4;
  rendezvous::Node second = first;
  second.node_rank = 1;
  second.address = "10.0.0.2";
  RankSetting setting;
  setting.threads = 6;
  setting.runtime_dir = "/opt/paceline";
  setting.rank_table_path = "/run/table";
  setting.telemetry_socket = "/run/sock";
  setting.failure_file = "/run/failed";
  setting.interface = "eth0";
  setting.network = fabric::advise({.interface = {.name = "eth0"}}, {});
  setting.max_restarts = 7;
  setting.job_uid = "uid-1";
  return {rendezvous::make_rank_table(3, 29503, {first, second}), setting};
}

TEST(ListVariable, PrependsOnceAndKeepsWhatWasThere) {
  EXPECT_EQ(prepend({"/a", "/b"}, ""), "/a:/b");
  EXPECT_EQ(prepend({"/a"}, "/x:/y"), "/a:/x:/y");
  EXPECT_EQ(prepend({"/a", "/b"}, "/x:/b:/a"), "/a:/b:/x");
  EXPECT_EQ(prepend({"/a"}, "/x::/y"), "/a:/x::/y");
}

TEST(Environment, RankVariablesComeFromTheTable) {
  const auto variables =
      compose_environment({{"RANK", "99"}, {"MASTER_ADDR", "stale"}}, rank()).variables;
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

TEST(Environment, APodThatIsReplacedAloneIsCalledByItsName) {
  rendezvous::Node server;
  server.role = "ps";
  server.kind = RoleKind::kParameterServer;
  server.address = "10.0.0.1";
  rendezvous::Node worker;
  worker.node_rank = 1;
  worker.role = "worker";
  worker.replica_index = 0;
  worker.address = "10.0.0.2";
  auto table = rendezvous::make_rank_table(0, 29500, {server, worker});
  EXPECT_EQ(table.nodes[1].host, "10.0.0.2");
  rendezvous::name_hosts(table, "ads", "ads");
  EXPECT_EQ(table.nodes[0].host, "10.0.0.1");
  EXPECT_EQ(table.nodes[1].host, "ads-worker-0.ads");
  const auto document = nlohmann::json::parse(rendezvous::to_json(table));
  EXPECT_EQ(document["nodes"][1]["host"], "ads-worker-0.ads");
  EXPECT_EQ(document["nodes"][1]["address"], "10.0.0.2");
  RankSetting setting;
  setting.framework = "Custom";
  const auto master = [&](std::size_t node) {
    return compose_environment({}, {table, table.nodes[node], setting}).variables.at("MASTER_ADDR");
  };
  EXPECT_EQ(master(0), "ads-worker-0.ads");
  EXPECT_EQ(master(1), "10.0.0.2") << "rank 0 may listen there before its name resolves";
}

TEST(Environment, OnlyAnInjectedRankIsToldWhereToSayThatItFails) {
  EXPECT_EQ(compose_environment({}, rank()).variables.at("PACELINE_FAILURE_FILE"), "/run/failed");
  const Environment off{{"PACELINE_DISABLE", "1"}};
  EXPECT_FALSE(compose_environment(off, rank()).variables.contains("PACELINE_FAILURE_FILE"));
}

TEST(Environment, RankZeroAloneIsToldWhereToSayWhatActs) {
  auto given = rank();
  given.setting.effects_file = "/run/effects";
  EXPECT_FALSE(compose_environment({}, given).variables.contains("PACELINE_EFFECTS_FILE"));
  const Process zero{given.table, given.table.nodes[0], given.setting};
  EXPECT_EQ(compose_environment({}, zero).variables.at("PACELINE_EFFECTS_FILE"), "/run/effects");
  const Environment off{{"PACELINE_DISABLE", "1"}};
  EXPECT_FALSE(compose_environment(off, zero).variables.contains("PACELINE_EFFECTS_FILE"));
}

TEST(Environment, WhatTrialsShowIsKeptInThePodUnlessTheUserNamesAFolder) {
  auto given = rank();
  given.setting.learned_dir = "/run/learned";
  EXPECT_EQ(compose_environment({}, given).variables.at("PACELINE_LEARNED_DIR"), "/run/learned");
  const Environment own{{"PACELINE_LEARNED_DIR", "/volume"}};
  EXPECT_EQ(compose_environment(own, given).variables.at("PACELINE_LEARNED_DIR"), "/volume");
}

TEST(Environment, TheSecretDoesNotReachTheProgram) {
  EXPECT_FALSE(
      compose_environment({{"PACELINE_TOKEN", "s"}}, rank()).variables.contains("PACELINE_TOKEN"));
}

TEST(Environment, WhatTheUserHasSetStays) {
  const auto composed = compose_environment(
      {{"OMP_NUM_THREADS", "3"}, {"NCCL_SOCKET_IFNAME", "ib0"}, {"PYTHONPATH", "/mine"}}, rank());
  EXPECT_EQ(composed.variables.at("OMP_NUM_THREADS"), "3");
  EXPECT_EQ(composed.variables.at("NCCL_SOCKET_IFNAME"), "ib0");
  EXPECT_EQ(composed.variables.at("GLOO_SOCKET_IFNAME"), "eth0");
  EXPECT_EQ(composed.variables.at("PYTHONPATH"),
            "/opt/paceline/python/site:/opt/paceline/python:/mine");
  EXPECT_EQ(composed.changes.size(), 3U);  // PYTHONUNBUFFERED, GLOO_SOCKET_IFNAME, PYTHONPATH
}

TEST(Environment, WhatKeepsPyTorchFromLoadingTheRuntimeIsSaid) {
  const auto said = [](const Environment& base) {
    const auto changes = compose_environment(base, rank()).changes;
    return std::count_if(changes.begin(), changes.end(), [](const std::string& change) {
      return change.starts_with("TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps PyTorch 2.5 and later") &&
             change.ends_with("Unset it, or call paceline.accelerate in the program");
    });
  };
  EXPECT_EQ(said({{"TORCH_DEVICE_BACKEND_AUTOLOAD", "0"}}), 1);
  EXPECT_EQ(said({{"TORCH_DEVICE_BACKEND_AUTOLOAD", "1"}}), 0);
  EXPECT_EQ(said({}), 0);
  EXPECT_EQ(said({{"TORCH_DEVICE_BACKEND_AUTOLOAD", "0"}, {"PACELINE_DISABLE", "1"}}), 0);
}

TEST(Environment, SettingsOfNcclHaveALineEachWhereItTalksToOtherHosts) {
  Rank told = rank();
  const auto one_host = compose_environment({}, told);
  EXPECT_TRUE(one_host.network.empty());
  EXPECT_FALSE(one_host.variables.contains("PACELINE_NETWORK"));
  told.setting.network.transport = "RDMA over 8 ports";
  const auto hosts = compose_environment({{"GLOO_SOCKET_IFNAME", "ib0"}}, told);
  EXPECT_EQ(hosts.network,
            (std::vector<std::string>{"NCCL between hosts: RDMA over 8 ports",
                                      "NCCL_SOCKET_IFNAME==eth0: it has this pod's address"}));
  EXPECT_EQ(hosts.variables.at("NCCL_SOCKET_IFNAME"), "=eth0");
  EXPECT_EQ(hosts.variables.at("GLOO_SOCKET_IFNAME"), "ib0");
  for (const std::string& change : hosts.changes) EXPECT_FALSE(change.contains("IFNAME")) << change;
}

TEST(Environment, TheProfilerPluginHasItsReasonOnOneHostToo) {
  Rank told = rank();
  told.setting.network.settings.push_back({"NCCL_PROFILER_PLUGIN", "/a/plugin.so", "it counts"});
  const auto composed = compose_environment({}, told);
  EXPECT_EQ(composed.variables.at("NCCL_PROFILER_PLUGIN"), "/a/plugin.so");
  const auto document = nlohmann::json::parse(composed.variables.at("PACELINE_NETWORK"));
  EXPECT_EQ(document["transport"], "");
  EXPECT_EQ(document["settings"].back()["reason"], "it counts");
  EXPECT_TRUE(composed.network.empty());
  EXPECT_EQ(compose_environment({{"NCCL_PROFILER_PLUGIN", "mine"}}, told)
                .variables.at("NCCL_PROFILER_PLUGIN"),
            "mine");
}

TEST(Environment, GpuDirectIsTurnedOffWhereAskedAndNotSetOtherwise) {
  EXPECT_FALSE(compose_environment({}, rank()).variables.contains("NCCL_NET_GDR_LEVEL"));
  Rank off = rank();
  off.setting.network = fabric::advise({}, {.gpu_direct_off = true});
  EXPECT_EQ(compose_environment({}, off).variables.at("NCCL_NET_GDR_LEVEL"), "LOC");
  EXPECT_EQ(
      compose_environment({{"NCCL_NET_GDR_LEVEL", "PXB"}}, off).variables.at("NCCL_NET_GDR_LEVEL"),
      "PXB");
}

TEST(Environment, TheKillSwitchKeepsEverythingOut) {
  const auto composed =
      compose_environment({{"PACELINE_DISABLE", "1"}, {"PYTHONPATH", "/mine"}}, rank());
  EXPECT_EQ(composed.variables.at("PYTHONPATH"), "/mine");
}

TEST(Environment, PassthroughSpeaksToTorchrunOnly) {
  Rank kept = rank();
  kept.setting.passthrough = true;
  const auto variables = compose_environment({}, kept).variables;
  EXPECT_FALSE(variables.contains("RANK"));
  EXPECT_EQ(variables.at("PET_NNODES"), "2");
  EXPECT_EQ(variables.at("PET_NODE_RANK"), "1");
  EXPECT_EQ(variables.at("PET_MASTER_PORT"), "29503");
  EXPECT_EQ(variables.at("PET_MAX_RESTARTS"), "0");
  EXPECT_EQ(variables.at("PET_NPROC_PER_NODE"), "4");
  EXPECT_EQ(
      compose_environment({{"PET_NPROC_PER_NODE", "gpu"}}, kept).variables.at("PET_NPROC_PER_NODE"),
      "gpu");
}

TEST(Environment, ThreadsAreDividedAndNeverNone) {
  EXPECT_EQ(threads_per_rank(16, 4), 4);
  EXPECT_EQ(threads_per_rank(2, 4), 1);
  EXPECT_EQ(threads_per_rank(0, 0), 1);
}

}  // namespace
}  // namespace paceline::frameworks
