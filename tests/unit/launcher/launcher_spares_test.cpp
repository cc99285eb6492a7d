// SPDX-License-Identifier: Apache-2.0
// A launcher that stands by takes the place of one that is killed, or falls silent.
#include <fstream>

#include "tests/unit/launcher/launcher_process.hpp"

namespace paceline::launcher {
namespace {

/// Two places, and one spare with node rank 2.
struct LauncherSpares : LauncherProcess {
  void launch_all() {
    for (const int node : {0, 1, 2})
      launch(node, script,
             {{"PACELINE_SPARES", "1"}, {"PACELINE_REPLICA_INDEX", std::to_string(node)}});
    ASSERT_TRUE(eventually([&] { return count("rank-0-") == 4 && is_held(2); })) << log(0);
  }
  bool is_held(int node) const {
    return log(0).find("job-worker-" + std::to_string(node) + " stands by") != std::string::npos;
  }
  void let_them_end() { std::ofstream(dir / "go") << "\n"; }

  const std::string script =
      "echo $PACELINE_NODE_RANK > $DIR/rank-$PACELINE_ATTEMPT-$RANK; "
      "until [ -e $DIR/go ]; do sleep 0.05; done";
};

TEST_F(LauncherSpares, TakeThePlaceOfAKilledLauncher) {
  launch_all();
  EXPECT_EQ(log(2).find("[2]"), std::string::npos) << "no rank runs beside it";
  ::kill(running.at(1), SIGKILL);
  ASSERT_TRUE(eventually([&] { return count("rank-1-") == 4; })) << log(0) << log(2);
  EXPECT_EQ(slurp(dir / "rank-1-2"), "1\n") << "the place, and not the spare's own number";
  wait(1);
  let_them_end();
  EXPECT_EQ(wait(0), contract::kExitOk) << log(0);
  EXPECT_EQ(wait(2), contract::kExitOk) << log(2);
  EXPECT_EQ(message(0)["attempt"], 1);
  EXPECT_EQ(message(0)["restarts"], 0);
}

TEST_F(LauncherSpares, TakeThePlaceOfASilentLauncherWhichStandsByWhenItIsBack) {
  launch_all();
  ::kill(running.at(1), SIGSTOP);
  ASSERT_TRUE(eventually([&] { return count("rank-1-") == 4; })) << log(0) << log(2);
  EXPECT_NE(log(0).find("has been silent for 6 s"), std::string::npos) << log(0);
  ::kill(running.at(1), SIGCONT);
  EXPECT_TRUE(eventually([&] { return is_held(1); })) << log(0) << log(1);
  let_them_end();
  for (const int node : {0, 1, 2}) EXPECT_EQ(wait(node), contract::kExitOk) << log(node);
  EXPECT_EQ(count("rank-2-"), 0) << "nothing more was restarted";
}

/// Plays a rank's Python, and its standby: says what it was told, and waits for its environment.
constexpr const char* kPython = R"sh(#!/bin/bash
kind=rank
if [[ -n $PACELINE_STANDBY_SOCKET ]]; then
  kind="standby, told $(tr '\n' ' ' < "$PACELINE_STANDBY_FILE")"
  echo "ready 1048576" >&"$PACELINE_STANDBY_SOCKET"
  mapfile -d '' -t variables <&"$PACELINE_STANDBY_SOCKET"
  (( ${#variables[@]} )) || exit 0
  export "${variables[@]}"
else
  printf '%s\n%s\n' $$ "torch of rank $RANK" > "$PACELINE_STANDBY_FILE.part"
  mv "$PACELINE_STANDBY_FILE.part" "$PACELINE_STANDBY_FILE"
fi
echo "$kind" > "$DIR/part$RANK" && mv "$DIR/part$RANK" "$DIR/rank-$PACELINE_ATTEMPT-$RANK"
until [ -e "$DIR/go" ]; do sleep 0.05; done
)sh";

TEST_F(LauncherSpares, HaveMadeTheImportsBeforeTheyHaveAPlace) {
  const fs::path python = dir / "python";
  std::ofstream(python) << kPython;
  fs::permissions(python, fs::perms::owner_all);
  for (const int node : {0, 1, 2}) {
    launch_command(node, {python.string()},
                   {{"PACELINE_SPARES", "1"},
                    {"PACELINE_REPLICA_INDEX", std::to_string(node)},
                    {"PACELINE_RUNTIME_DIR", dir.string()}});
  }
  const auto ready = [&] {
    return log(2).find("2 standby interpreters are ready") != std::string::npos;
  };
  ASSERT_TRUE(eventually(ready)) << log(0) << log(2);
  ::kill(running.at(1), SIGKILL);
  ASSERT_TRUE(eventually([&] { return count("rank-1-") == 4; })) << log(0) << log(2);
  for (const char* rank : {"rank-1-2", "rank-1-3"}) {
    EXPECT_EQ(slurp(dir / rank), "standby, told 0 torch of rank 0 \n") << rank;
  }
  wait(1);
  let_them_end();
  for (const int node : {0, 2}) EXPECT_EQ(wait(node), contract::kExitOk) << log(node);
}

TEST_F(LauncherSpares, EndWhenTheyAreTold) {
  launch_all();
  ::kill(running.at(2), SIGTERM);
  EXPECT_EQ(wait(2), contract::kExitTerminated) << log(2);
  let_them_end();
  EXPECT_EQ(wait(0), contract::kExitOk) << log(0);
  EXPECT_EQ(wait(1), contract::kExitOk) << log(1);
  EXPECT_EQ(message(0)["attempt"], 0);
}

}  // namespace
}  // namespace paceline::launcher
