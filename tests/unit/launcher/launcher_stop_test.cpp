// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "tests/unit/launcher/launcher_process.hpp"

namespace paceline::launcher {
namespace {

TEST_F(LauncherProcess, SigtermReachesTheRanksAndIsNoFailure) {
  nodes = 1;
  launch(0,
         "trap 'echo saved > $DIR/saved-$RANK; exit 0' TERM; touch $DIR/up-$RANK; while :; do "
         "sleep 0.05; done",
         {{"PACELINE_GRACE_PERIOD", "60s"}});
  ASSERT_TRUE(eventually([&] { return count("up-") == 2; }));
  ::kill(running[0], SIGTERM);
  EXPECT_EQ(wait(0), contract::kExitTerminated) << log(0);
  EXPECT_EQ(count("saved-"), 2);
  EXPECT_EQ(message(0)["verdict"], "Terminated");
  EXPECT_EQ(message(0)["restarts"], 0);
}

TEST_F(LauncherProcess, ADrainedReplicaLetsTheWholeGangSaveAtAStepBoundaryAndSpendsNoRestart) {
  // A rank ends its step before it saves, and takes long; attempt 1 finds the saved file.
  const std::string script =
      "if [ $PACELINE_ATTEMPT = 1 ]; then [ -s $DIR/saved-$RANK ] && exit 0; exit 9; fi; "
      "asked=; trap 'asked=yes; echo $(date +%s%N) > $DIR/asked-$RANK' TERM; touch $DIR/up-$RANK; "
      "while :; do sleep 0.1; if [ $asked ]; then sleep 5; echo $(date +%s%N) > $DIR/saved-$RANK; "
      "exit 0; "
      "fi; done";
  const std::map<std::string, std::string> patient{{"PACELINE_GRACE_PERIOD", "20s"}};
  launch(0, script, patient);
  launch(1, script, patient);
  ASSERT_TRUE(eventually([&] { return count("up-") == 4; })) << log(0);
  ::kill(running[1], SIGTERM);
  EXPECT_EQ(wait(1), contract::kExitTerminated) << log(1);
  EXPECT_EQ(message(1)["verdict"], "Terminated");
  const auto written = [&](const std::string& what, int rank) {
    return slurp(dir / (what + std::to_string(rank)));
  };
  long long saved = std::numeric_limits<long long>::max();
  long long asked = 0;
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(eventually([&] { return !written("saved-", rank).empty(); })) << log(0);
    saved = std::min(saved, std::stoll(written("saved-", rank)));
    asked = std::max(asked, std::stoll(written("asked-", rank)));
  }
  EXPECT_LT(asked, saved) << "all are asked at once, not when the drained replica has ended";
  launch(1, script, {{"PACELINE_INCARNATION", "1"}});
  EXPECT_EQ(wait(0), contract::kExitOk) << log(0);
  EXPECT_EQ(wait(1), contract::kExitOk) << log(1);
  EXPECT_EQ(message(0)["restarts"], 0);
  EXPECT_EQ(message(0)["attempt"], 1);
}

TEST_F(LauncherProcess, WhatIgnoresSigtermIsKilledAfterTheGrace) {
  nodes = 1;
  // The grandchild leaves its process group and ignores all signals that it can.
  launch(0,
         "trap '' TERM; setsid sh -c \"trap '' TERM; echo \\$\\$ > $DIR/orphan-$RANK; while :; do "
         "sleep 0.05; done\" & "
         "touch $DIR/up-$RANK; while :; do sleep 0.05; done",
         {{"PACELINE_GRACE_PERIOD", "300ms"}});
  ASSERT_TRUE(eventually([&] {
    return count("orphan-") == 2 && !slurp(dir / "orphan-0").empty() &&
           !slurp(dir / "orphan-1").empty();
  }));
  const int orphan = std::stoi(slurp(dir / "orphan-0"));
  ::kill(running[0], SIGTERM);
  EXPECT_EQ(wait(0), contract::kExitTerminated) << log(0);
  EXPECT_TRUE(eventually([&] { return !alive(orphan); })) << "an orphan outlived its launcher";
}

TEST_F(LauncherProcess, RanksDieWithAKilledLauncherAndTheOthersWaitForTheNext) {
  const std::string script =
      "echo $$ > $DIR/pid-$PACELINE_ATTEMPT-$RANK; [ $PACELINE_ATTEMPT = 0 ] && exec sleep 60; "
      "exit 0";
  launch(0, script);
  launch(1, script);
  ASSERT_TRUE(eventually([&] { return count("pid-0-") == 4 && !slurp(dir / "pid-0-3").empty(); }));
  const int rank = std::stoi(slurp(dir / "pid-0-3"));
  ::kill(running[1], SIGKILL);
  EXPECT_EQ(wait(1), 1000 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return !alive(rank); })) << "a rank outlived its launcher";
  EXPECT_TRUE(eventually([&] { return log(0).find("waits for it") != std::string::npos; }))
      << log(0);
  launch(1, script, {{"PACELINE_INCARNATION", "1"}});
  EXPECT_EQ(wait(0), contract::kExitOk) << log(0);
  EXPECT_EQ(wait(1), contract::kExitOk) << log(1);
  EXPECT_EQ(message(0)["restarts"], 0);
  EXPECT_EQ(message(0)["attempt"], 1);
}

TEST_F(LauncherProcess, LosingRankZerosLauncherIsSurvivedToo) {
  const std::string script =
      "echo $$ > $DIR/pid-$PACELINE_ATTEMPT-$RANK; [ $PACELINE_ATTEMPT = 0 ] && exec sleep 60; "
      "exit 0";
  launch(0, script);
  launch(1, script);
  ASSERT_TRUE(eventually([&] { return count("pid-0-") == 4; }));
  ::kill(running[0], SIGKILL);
  EXPECT_EQ(wait(0), 1000 + SIGKILL);
  launch(0, script, {{"PACELINE_INCARNATION", "1"}, {"PACELINE_ATTEMPT", "1"}});
  EXPECT_EQ(wait(0), contract::kExitOk) << log(0);
  EXPECT_EQ(wait(1), contract::kExitOk) << log(1);
  EXPECT_EQ(count("pid-1-"), 4);
}

}  // namespace
}  // namespace paceline::launcher
