// SPDX-License-Identifier: Apache-2.0
// Real launchers and Python ranks: all ranks save at one step before a replica ends.
#include <fstream>
#include <set>

#include "launcher/summary/http_client.hpp"
#include "tests/unit/launcher/launcher_process.hpp"

namespace paceline::launcher {
namespace {

// A rank that asks after each step. In the attempt after the first it only says where it would go
// on. SAVED says what follows the save: it goes on, has finished, exits, hangs or fails.
constexpr std::string_view kRank = R"(
import os, pathlib, signal, sys, time
import paceline
from paceline._core.saving import saving

folder = pathlib.Path(os.environ["DIR"])
rank = os.environ["RANK"]
saved = folder / f"saved-{rank}"
if os.environ["PACELINE_ATTEMPT"] != "0":
    (folder / f"resumed-{rank}").write_text(saved.read_text())
    sys.exit(0)

def asked_to_end(*_):
    (folder / f"term-{rank}").write_text(str(len(list(folder.glob("saved-*")))))
    os._exit(0)

signal.signal(signal.SIGTERM, asked_to_end)
after = os.environ.get("SAVED", "on") if rank == "1" else os.environ.get("OTHERS", "on")
for step in range(1, 1 << 30):
    time.sleep(0.005)
    if paceline.save_requested(step):
        (folder / f"go-on-{rank}").write_text(str(saving.go_on))
        saved.write_text(str(step))
        if after == "finish":
            paceline.finished()
            sys.exit(0)
        if after == "exit":
            sys.exit(0)
        if after == "fail":
            sys.exit(3)
        while after == "hang":
            time.sleep(0.05)
    (folder / f"up-{rank}").touch()
)";

struct LauncherSaves : LauncherProcess {
  LauncherSaves() { std::ofstream(dir / "rank.py") << kRank; }

  void start(int node, std::map<std::string, std::string> more = {}) {
    more.insert({"PACELINE_PROCESSES_PER_REPLICA", "1"});
    more.insert({"PACELINE_GRACE_PERIOD", "300s"});
    more.insert({"PYTHONDONTWRITEBYTECODE", "1"});
    more.insert({"PYTHONPATH", PACELINE_SOURCE_DIR "/accel/python"});
    launch(node, "exec python3 $DIR/rank.py", more);
  }

  void start_all(const std::map<std::string, std::string>& more = {}) {
    for (int node = 0; node < nodes; ++node) start(node, more);
    ASSERT_TRUE(eventually([&] { return count("up-") == nodes; })) << log(0);
  }

  /// Like start_all, and node rank 0 takes warnings.
  void start_all_served(const std::map<std::string, std::string>& more = {}) {
    auto served = more;
    served["PACELINE_HTTP_LISTEN"] = "127.0.0.1:" + std::to_string(http.port());
    for (int node = 0; node < nodes; ++node) start(node, node == 0 ? served : more);
    ASSERT_TRUE(eventually([&] { return count("up-") == nodes; })) << log(0);
  }

  void warn() {
    const auto answer = summary::exchange({{"127.0.0.1", http.port()}},
                                          {.post = true,
                                           .path = "/v1/warnings",
                                           .body = R"({"nodes": ["node-a"]})",
                                           .headers = {{"Authorization", "Bearer secret"}}},
                                          seconds(10));
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->status, 200) << answer->body;
  }

  const net::HeldPort http{"127.0.0.1"};

  /// The step at which all ranks saved; "" if they did not, or at several.
  std::string common_step() const {
    std::set<std::string> steps;
    for (int rank = 0; rank < nodes; ++rank)
      steps.insert(slurp(dir / ("saved-" + std::to_string(rank))));
    return steps.size() == 1 ? *steps.begin() : "";
  }
};

TEST_F(LauncherSaves, OneDrainedOfThreeLetsAllSaveAtOneStepAndGoOnFromThere) {
  nodes = 3;
  start_all({{"SAVED", "exit"}, {"OTHERS", "exit"}});
  ::kill(running[1], SIGTERM);
  EXPECT_EQ(wait(1), contract::kExitTerminated) << log(1);
  const std::string step = common_step();
  ASSERT_NE(step, "") << log(0);
  EXPECT_EQ(std::to_string(message(1)["checkpoint"].value("lastStep", 0)), step) << message(1);
  EXPECT_TRUE(eventually([&] {
    return log(0).contains("saved at step " + step + " on all ranks, in ");
  })) << log(0);
  start(1, {{"PACELINE_INCARNATION", "1"}});
  for (int node = 0; node < nodes; ++node) EXPECT_EQ(wait(node), contract::kExitOk) << log(node);
  for (int rank = 0; rank < nodes; ++rank)
    EXPECT_EQ(slurp(dir / ("resumed-" + std::to_string(rank))), step);
  EXPECT_EQ(message(0)["restarts"], 0);
  EXPECT_EQ(message(0)["attempt"], 1);
}

TEST_F(LauncherSaves, AllAskedToEndAtOnceSaveAtOneStepBeforeSigterm) {
  nodes = 3;
  start_all();
  for (const auto& [node, pid] : running) ::kill(pid, SIGTERM);
  for (int node = 0; node < nodes; ++node)
    EXPECT_EQ(wait(node), contract::kExitTerminated) << log(node);
  EXPECT_NE(common_step(), "") << log(0);
  for (int rank = 0; rank < nodes; ++rank)
    EXPECT_EQ(slurp(dir / ("term-" + std::to_string(rank))), "3") << "SIGTERM came before the save";
}

TEST_F(LauncherSaves, ARankThatDoesNotSaveInTimeEndsTheWait) {
  start_all({{"SAVED", "hang"}, {"PACELINE_GRACE_PERIOD", "10s"}});
  ::kill(running[0], SIGTERM);
  EXPECT_EQ(wait(0), contract::kExitTerminated) << log(0);
  EXPECT_NE(log(0).find("not all ranks saved within"), std::string::npos) << log(0);
  EXPECT_FALSE(message(0).contains("checkpoint"));
  EXPECT_TRUE(eventually([&] { return count("term-") == 2; })) << log(1);
}

TEST_F(LauncherSaves, ASecondSignalEndsTheWait) {
  start_all({{"SAVED", "hang"}});
  ::kill(running[1], SIGTERM);
  ASSERT_TRUE(eventually([&] { return count("saved-") == 2; })) << log(0);
  EXPECT_EQ(count("term-"), 0);
  ::kill(running[1], SIGTERM);
  EXPECT_EQ(wait(1), contract::kExitTerminated) << log(1);
  EXPECT_TRUE(eventually([&] { return count("term-") == 2; })) << log(0);
}

TEST_F(LauncherSaves, ARankThatFailsMeanwhileEndsTheWaitAndSpendsNoRestart) {
  start_all({{"SAVED", "fail"}, {"OTHERS", "hang"}});
  ::kill(running[0], SIGTERM);
  EXPECT_EQ(wait(0), contract::kExitTerminated) << log(0);
  EXPECT_NE(log(0).find("while the ranks saved: no rank waits any longer"), std::string::npos)
      << log(0);
  EXPECT_EQ(message(0)["restarts"], 0);
  EXPECT_FALSE(message(0).contains("checkpoint")) << "a rank that failed has not saved";
}

TEST_F(LauncherSaves, AWarningSavesAtOneStepAndADrainSavesAgainAtALaterOne) {
  start_all_served();
  warn();
  ASSERT_TRUE(eventually([&] { return log(0).contains(" on all ranks, in "); })) << log(0);
  EXPECT_TRUE(log(0).contains("the job may soon lose node-a")) << log(0);
  const std::string first = common_step();
  ASSERT_NE(first, "") << log(0);
  EXPECT_EQ(count("term-"), 0) << "the ranks train on";
  for (int rank = 0; rank < nodes; ++rank)
    EXPECT_EQ(slurp(dir / ("go-on-" + std::to_string(rank))), "True") << "of a warning";
  ::kill(running[1], SIGTERM);
  EXPECT_EQ(wait(1), contract::kExitTerminated) << log(1);
  const std::string second = common_step();
  ASSERT_NE(second, "") << log(0);
  EXPECT_GT(std::stoi(second), std::stoi(first));
  for (int rank = 0; rank < nodes; ++rank)
    EXPECT_EQ(slurp(dir / ("go-on-" + std::to_string(rank))), "False") << "of a drain";
  EXPECT_EQ(std::to_string(message(1)["checkpoint"].value("lastStep", 0)), second) << message(1);
}

TEST_F(LauncherSaves, RanksThatExitAfterTheSaveOfAWarningStartAgain) {
  start_all_served({{"SAVED", "exit"}, {"OTHERS", "exit"}});
  warn();
  for (int node = 0; node < nodes; ++node) EXPECT_EQ(wait(node), contract::kExitOk) << log(node);
  const std::string step = common_step();
  ASSERT_NE(step, "") << log(0);
  for (int rank = 0; rank < nodes; ++rank)
    EXPECT_EQ(slurp(dir / ("resumed-" + std::to_string(rank))), step) << log(0);
  EXPECT_EQ(message(0)["restarts"], 0);
  EXPECT_EQ(message(0)["attempt"], 1);
}

TEST_F(LauncherSaves, TrainingThatIsFinishedRightAfterTheSaveOfAWarningStartsNotAgain) {
  start_all_served({{"SAVED", "finish"}, {"OTHERS", "finish"}});
  warn();
  for (int node = 0; node < nodes; ++node) EXPECT_EQ(wait(node), contract::kExitOk) << log(node);
  EXPECT_NE(common_step(), "") << log(0);
  EXPECT_EQ(count("resumed-"), 0) << log(0);
  EXPECT_EQ(message(0)["attempt"], 0);
}

TEST_F(LauncherSaves, DisabledItEndsTheRanksAtOnce) {
  start_all({{"PACELINE_CHECKPOINT_GRACE", "Disabled"}});
  ::kill(running[1], SIGTERM);
  EXPECT_EQ(wait(1), contract::kExitTerminated) << log(1);
  EXPECT_TRUE(eventually([&] { return count("term-") == 2; })) << log(0);
  EXPECT_EQ(count("saved-"), 0);
}

}  // namespace
}  // namespace paceline::launcher
