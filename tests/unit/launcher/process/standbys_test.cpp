// SPDX-License-Identifier: Apache-2.0
// The launcher's side of standbys, with shells in place of Python. The other side, and that both
// fit: accel/tests/inject/test_standby.py and bench/recovery.
#include "launcher/process/standbys.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "launcher/process/cgroup.hpp"
#include "launcher/process/log_pump.hpp"
#include "launcher/process/rank_set.hpp"
#include "tests/unit/launcher/program.hpp"

namespace paceline::process {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A rank tells its pid, as its Python does. A standby says what it is told to, and waits for the
// environment. The program writes which of both it was, and what it was given.
constexpr const char* kProgram = R"(
kind=rank
if [[ -n $PACELINE_STANDBY_SOCKET ]]; then
  kind=standby
  echo "$SAY" >&"$PACELINE_STANDBY_SOCKET"
  mapfile -d '' -t variables <&"$PACELINE_STANDBY_SOCKET"
  (( ${#variables[@]} )) || exit 0
  given="${variables[*]} "
else
  echo "$$" > "$FOLDER/imports.part" && mv "$FOLDER/imports.part" "$FOLDER/imports"
fi
echo "$kind ${given##*ATTEMPT=}" > "$FOLDER/ran.part" && mv "$FOLDER/ran.part" "$FOLDER/ran"
exec sleep 1000
)";

struct StandbysTest : ::testing::Test {
  StandbysTest() {
    fs::remove_all(root);
    fs::create_directories(root / "proc");
    has_memory(8 << 20);
  }
  ~StandbysTest() override {
    standbys.reset();
    fs::remove_all(root);
  }

  void has_memory(int left_kib) const {
    std::ofstream(root / "proc/meminfo")
        << "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:   " << left_kib << " kB\n";
  }

  RankSpec spec(const std::string& attempt, const std::string& say = "ready 2097152") const {
    RankSpec spec;
    spec.request.argv = {"bash", "-c", kProgram};
    spec.request.environment = {"PATH=/usr/bin:/bin", "FOLDER=" + root.string(), "SAY=" + say,
                                "ATTEMPT=" + attempt};
    spec.standby_file = root / "imports";
    return spec;
  }

  /// What the program of the attempt wrote.
  std::string start(const RankSpec& spec) {
    fs::remove(root / "ran");
    ranks.start({spec});
    EXPECT_TRUE(test::eventually([&] { return fs::exists(root / "ran"); }));
    return test::slurp(root / "ran");
  }

  /// Lets the time pass that a rank must have trained, and waits for the line about standbys. One
  /// that has begun is a real program, whose time is limited.
  bool says(const std::string& what) {
    return test::eventually([&] {
      clock.advance(standbys->any() ? milliseconds(100) : seconds(2));
      ranks.on_child();
      ranks.on_tick();
      return !lines.empty() && lines.back().contains(what);
    });
  }

  void stop() {
    stopped = false;
    ranks.stop();
    EXPECT_TRUE(test::eventually([&] {
      ranks.on_child();
      return stopped;
    }));
  }

  const fs::path root =
      fs::temp_directory_path() / ("paceline-standby-" + std::to_string(::getpid()));
  ManualClock clock;
  LogPump pump;
  std::vector<std::string> lines;
  bool stopped = false;
  std::optional<Standbys> standbys{std::in_place, clock, root,
                                   [this](const std::string& line) { lines.push_back(line); }};
  RankSet ranks{pump,
                clock,
                seconds(5),
                "/",
                {[](int, const std::optional<rendezvous::Failure>&) {}, [this] { stopped = true; }},
                &*standbys};
};

TEST_F(StandbysTest, TheNextAttemptGoesOnInTheStandby) {
  EXPECT_EQ(start(spec("0")), "rank \n");
  EXPECT_FALSE(standbys->any()) << "the rank has not trained long enough";
  ASSERT_TRUE(says("1 standby interpreters are ready, 2 MiB each"));
  EXPECT_TRUE(standbys->any());
  stop();
  EXPECT_TRUE(standbys->any()) << "it is none of the attempt";
  EXPECT_EQ(start(spec("1")), "standby 1 \n");
  EXPECT_FALSE(standbys->any());
  EXPECT_EQ(ranks.processes().size(), 1U);
  stop();
}

TEST_F(StandbysTest, ARankThatHasWrittenNothingGetsNone) {
  RankSpec silent = spec("0");
  silent.standby_file = root / "another";
  start(silent);
  std::ofstream(root / "another") << "1\n";  // another process than the rank's
  clock.advance(seconds(60));
  ranks.on_tick();
  clock.advance(seconds(60));
  ranks.on_tick();
  EXPECT_FALSE(standbys->any());
  stop();
}

TEST_F(StandbysTest, AnotherCommandIsStartedPlainly) {
  struct Case {
    const char* what;
    void (*change)(SpawnRequest& request);
  };
  for (const Case& each : {
           Case{"argument", [](SpawnRequest& r) { r.argv.emplace_back("more"); }},
           Case{"CPUs", [](SpawnRequest& r) { r.cpus = {0}; }},
           Case{"folder", [](SpawnRequest& r) { r.working_dir = "/"; }},
           Case{"limit", [](SpawnRequest& r) { r.open_files = rlimit{64, 64}; }},
       }) {
    start(spec("0"));
    lines.clear();
    ASSERT_TRUE(says("are ready")) << each.what;
    stop();
    RankSpec other = spec("1");
    each.change(other.request);
    EXPECT_EQ(start(other), "rank \n") << each.what;
    EXPECT_FALSE(standbys->any()) << each.what;
    stop();
  }
}

TEST_F(StandbysTest, WhatARankImportsIsToldOnceInEachAttempt) {
  EXPECT_EQ(standbys->told(), std::nullopt);
  start(spec("0"));
  EXPECT_EQ(standbys->told(), std::nullopt) << "it has not trained long enough";
  ASSERT_TRUE(says("are ready"));
  std::ofstream(root / "imports", std::ios::app) << "torch\n";
  EXPECT_EQ(standbys->told(), "torch\n");
  EXPECT_EQ(standbys->told(), std::nullopt);
  stop();
}

TEST_F(StandbysTest, AReplicaThatStandsByHasOneBeforeItsFirstRank) {
  ranks.prepare({spec("0")}, "torch\n");
  EXPECT_EQ(test::slurp(root / "imports"), "0\ntorch\n");
  ASSERT_TRUE(says("1 standby interpreters are ready"));
  EXPECT_EQ(standbys->told(), std::nullopt) << "it knows that from another";
  ranks.prepare({spec("0")}, "torch\nnumpy\n");
  EXPECT_FALSE(standbys->any()) << "the rank imports more now";
  lines.clear();
  ASSERT_TRUE(says("1 standby interpreters are ready"));
  EXPECT_EQ(start(spec("4")), "standby 4 \n");
  ranks.prepare({spec("5")}, "torch\n");
  EXPECT_FALSE(standbys->any()) << "its rank runs";
  stop();
}

TEST_F(StandbysTest, OneThatDiesIsNotTaken) {
  start(spec("0"));
  ASSERT_TRUE(says("are ready"));
  stop();
  std::ifstream children("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  pid_t standby = 0;
  ASSERT_TRUE(children >> standby);
  ASSERT_TRUE(standbys->has(standby));
  ASSERT_EQ(::kill(-standby, SIGKILL), 0);
  ASSERT_TRUE(test::eventually([&] { return !test::alive(standby); }));
  EXPECT_EQ(start(spec("1")), "rank \n");
  stop();
}

TEST_F(StandbysTest, AReasonIsSaidOnce) {
  for (const char* attempt : {"0", "1"}) {
    start(spec(attempt, "unfit an import has opened /dev/nvidia0"));
    if (lines.empty()) {
      ASSERT_TRUE(
          says("no standby interpreter for local rank 0: an import has opened /dev/nvidia0; "
               "a restart imports"));
    }
    stop();
  }
  EXPECT_EQ(lines.size(), 1U);
}

TEST_F(StandbysTest, WithoutMemoryThereIsNone) {
  has_memory((16777216 / 10) + (500 << 10));
  start(spec("0"));
  for (int i = 0; i < 60; ++i) {
    clock.advance(seconds(1));
    ranks.on_tick();
  }
  EXPECT_FALSE(standbys->any());
  has_memory((16777216 / 10) + (520 << 10));
  ASSERT_TRUE(says("are ready"));
  has_memory(16777216 / 11);
  ASSERT_TRUE(says("memory is short (1489 MiB of 16384 MiB left)"));
  EXPECT_FALSE(standbys->any());
  stop();
}

TEST_F(StandbysTest, MemoryIsThatOfTheContainer) {
  const auto put = [&](const std::string& file, const std::string& text) {
    fs::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
  };
  EXPECT_EQ(memory(root)->left, std::uint64_t{8} << 30) << "the machine's alone";
  put("sys/fs/cgroup/memory.max", "max\n");
  put("sys/fs/cgroup/memory.current", "1000\n");
  EXPECT_EQ(memory(root)->left, std::uint64_t{8} << 30) << "no limit";
  put("sys/fs/cgroup/memory.max", "4096\n");
  put("sys/fs/cgroup/memory.stat", "anon 1\ninactive_file 200\n");
  EXPECT_EQ(memory(root)->total, 4096U);
  EXPECT_EQ(memory(root)->left, 3296U);
  put("sys/fs/cgroup/memory.current", "5000\n");
  EXPECT_EQ(memory(root)->left, 0U);
}

}  // namespace
}  // namespace paceline::process
