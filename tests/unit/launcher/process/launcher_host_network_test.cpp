// SPDX-License-Identifier: Apache-2.0
// Launchers in one network, as those of pods with hostNetwork on one node.
#include "common/net/listener.hpp"
#include "tests/unit/launcher/launcher_process.hpp"

namespace paceline::launcher {
namespace {

/// The only replica of a job whose ports start here.
std::map<std::string, std::string> in_network_of_node(int base) {
  const std::string meet = std::to_string(base);
  return {{"PACELINE_NODE_RANK", "0"},
          {"PACELINE_NODE_NAME", "n7"},
          {"PACELINE_JOB_UID", "uid-" + meet},
          {"PACELINE_FRAMEWORK", "TensorFlow"},
          {"PACELINE_MASTER_PORT", ""},
          {"PACELINE_PORT_BASE", meet},
          {"PACELINE_RENDEZVOUS_ADDRESS", "127.0.0.1:" + meet},
          {"PACELINE_RENDEZVOUS_LISTEN", "[::]:" + meet},
          {"PACELINE_HTTP_LISTEN", "[::]:" + std::to_string(base + 1)},
          {"BASE", meet}};
}

TEST_F(LauncherProcess, TwoJobsInTheNetworkOfANodeRunSideBySide) {
  nodes = 1;
  // All four ranks run at once before one of them ends.
  const std::string script =
      "echo $MASTER_PORT $TF_CONFIG > $DIR/ports-$BASE-$RANK; "
      "until [ $(ls $DIR | grep -c ports-) = 4 ]; do sleep 0.05; done";
  launch(0, script, in_network_of_node(17000));
  launch(1, script, in_network_of_node(17100));
  EXPECT_EQ(wait(0), contract::kExitOk) << log(0);
  EXPECT_EQ(wait(1), contract::kExitOk) << log(1);
  EXPECT_EQ(slurp(dir / "ports-17000-0").find("17080 "), 0U) << slurp(dir / "ports-17000-0");
  EXPECT_EQ(slurp(dir / "ports-17100-1").find("17180 "), 0U) << slurp(dir / "ports-17100-1");
  EXPECT_NE(slurp(dir / "ports-17100-1").find("127.0.0.1:17111"), std::string::npos);
}

TEST_F(LauncherProcess, APortOfTheNodeThatAnotherProgramHasFailsThePreflight) {
  nodes = 1;
  const auto other = net::listen_on({"::", 17200}, 1);
  ASSERT_TRUE(other) << other.error().message;
  auto settings = in_network_of_node(17200);
  settings["PACELINE_STARTUP_TIMEOUT"] = "1s";
  launch(0, "exit 0", settings);
  EXPECT_EQ(wait(0), contract::kExitPreflight) << log(0);
  const auto told = message(0);
  EXPECT_EQ(told["verdict"], "PreflightFailed");
  for (const char* part : {"[::]:17200", "node n7", "17200 to 17299", "stop the program"})
    EXPECT_NE(told["message"].get<std::string>().find(part), std::string::npos) << told;
}

}  // namespace
}  // namespace paceline::launcher
