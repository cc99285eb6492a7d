// SPDX-License-Identifier: Apache-2.0
// Whole runs of the launcher in a container on a recorded machine.
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/unit/launcher/fabric/container.hpp"
#include "tests/unit/launcher/launcher_process.hpp"

namespace paceline::launcher {
namespace {

const std::string kShown =
    "env | grep -E '^(NCCL|GLOO)_' | sort > $DIR/nccl-$RANK; echo \"$PACELINE_NETWORK\" > "
    "$DIR/told-$RANK";
const std::string kList =
    "=mlx5_0:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_9:1,mlx5_10:1,mlx5_11:1";
const std::string kReason = "left out: mlx5_1:1,mlx5_7:1 (Ethernet beside InfiniBand)";

struct LauncherNccl : LauncherProcess {
  /// Runs two launchers, whose replicas have the addresses of one host or of two.
  void run(bool two_hosts, const std::map<std::string, std::string>& more = {}) {
    for (int node = 0; node < 2; ++node) {
      std::map<std::string, std::string> variables{
          {"PACELINE_DEVICE_ROOT", container.root().string()},
          {"PACELINE_RUNTIME_DIR", (dir / "runtime").string()}};
      if (two_hosts) variables["PACELINE_POD_IP"] = "127.0.0." + std::to_string(node + 1);
      variables.insert(more.begin(), more.end());
      launch(node, kShown, variables);
    }
    EXPECT_EQ(wait(0), contract::kExitOk) << log(0);
    EXPECT_EQ(wait(1), contract::kExitOk) << log(1);
  }

  const fabric::Container container{"xe9680-spare-ports", 8};
};

TEST_F(LauncherNccl, SetsWhatTheMachineCallsForAndSaysWhy) {
  run(true);
  EXPECT_EQ(slurp(dir / "nccl-0"),
            "GLOO_SOCKET_IFNAME=lo\nNCCL_IB_HCA=" + kList + "\nNCCL_SOCKET_IFNAME==lo\n");
  EXPECT_EQ(slurp(dir / "nccl-3"), "NCCL_IB_HCA=" + kList + "\n");  // its address is on no device
  const std::string line = "[paceline] NCCL_IB_HCA=" + kList + ": " + kReason + "\n";
  for (int node = 0; node < 2; ++node) {
    EXPECT_NE(log(node).find("[paceline] NCCL between hosts: RDMA over 8 ports\n"),
              std::string::npos)
        << log(node);
    EXPECT_NE(log(node).find(line), std::string::npos) << log(node);
  }
  const auto told = nlohmann::json::parse(slurp(dir / "told-3"));
  EXPECT_EQ(told["transport"], "RDMA over 8 ports");
  EXPECT_EQ(told["settings"].size(), 1U);
  EXPECT_EQ(told["settings"][0]["name"], "NCCL_IB_HCA");
  EXPECT_EQ(told["settings"][0]["value"], kList);
  EXPECT_EQ(told["settings"][0]["reason"], kReason);
}

TEST_F(LauncherNccl, OneHostIsLeftAsItWas) {
  run(false, {{"PACELINE_NETWORK", "of a launcher around this one"}});
  EXPECT_EQ(slurp(dir / "nccl-3"), "GLOO_SOCKET_IFNAME=lo\nNCCL_SOCKET_IFNAME==lo\n");
  EXPECT_EQ(slurp(dir / "told-3"), "\n");
  EXPECT_EQ(log(0).find("NCCL between hosts"), std::string::npos) << log(0);
  EXPECT_NE(log(0).find("environment of the ranks: "), std::string::npos) << log(0);
}

TEST_F(LauncherNccl, TheRuntimesProfilerPluginIsNamedUnlessTheJobDoesNotWantIt) {
  const auto plugin = dir / "runtime" / "lib" / "libpaceline_nccl.so";
  std::filesystem::create_directories(plugin.parent_path());
  std::ofstream(plugin).put('x');
  const std::string wanted = "PACELINE_NCCL_PROFILER";
  const std::vector<std::map<std::string, std::string>> on{{{wanted, "Auto"}}, {}};
  for (const auto& settings : on) {
    run(false, settings);
    EXPECT_EQ(slurp(dir / "nccl-3"), "GLOO_SOCKET_IFNAME=lo\nNCCL_PROFILER_PLUGIN=" +
                                         plugin.string() + "\nNCCL_SOCKET_IFNAME==lo\n");
  }
  const auto told = nlohmann::json::parse(slurp(dir / "told-3"));
  EXPECT_EQ(told["settings"].back()["name"], "NCCL_PROFILER_PLUGIN");
  EXPECT_NE(log(0).find(" NCCL_PROFILER_PLUGIN=" + plugin.string()), std::string::npos) << log(0);
  const std::vector<std::map<std::string, std::string>> off{
      {{wanted, "Disabled"}}, {{wanted, "Auto"}, {"PACELINE_DISABLE", "1"}}};
  for (std::size_t i = 0; i < off.size(); ++i) {
    run(false, off[i]);
    EXPECT_EQ(slurp(dir / "nccl-3").find("PROFILER"), std::string::npos) << i;
  }
}

TEST_F(LauncherNccl, TheUsersSettingsWin) {
  run(true, {{"NCCL_IB_HCA", "mlx5"}});
  EXPECT_EQ(slurp(dir / "nccl-3"), "NCCL_IB_HCA=mlx5\n");
  EXPECT_EQ(log(0).find("left out"), std::string::npos) << log(0);
}

TEST_F(LauncherNccl, BitwiseAndTheKillSwitchLeaveNcclAlone) {
  run(true, {{"PACELINE_NUMERICS", "Bitwise"}});
  EXPECT_EQ(slurp(dir / "nccl-3"), "");
  EXPECT_NE(log(0).find("left to NCCL: spec.acceleration.numerics is Bitwise"), std::string::npos)
      << log(0);
  run(true, {{"PACELINE_DISABLE", "1"}});
  EXPECT_EQ(slurp(dir / "nccl-3"), "");
  EXPECT_EQ(slurp(dir / "told-3"), "\n");
}

}  // namespace
}  // namespace paceline::launcher
