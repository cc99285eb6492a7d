// SPDX-License-Identifier: Apache-2.0
// `paceline run` as a person uses it, with jobs that are small shell scripts.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/unit/launcher/program.hpp"

namespace paceline {
namespace {

namespace fs = std::filesystem;

using test::alive;
using test::eventually;
using test::slurp;

struct RunTest : ::testing::Test {
  RunTest() {
    fs::remove_all(dir);
    fs::create_directories(dir / "tmp");
  }
  ~RunTest() override {
    for (const pid_t pid : begun) {
      // A process that the test has not waited for is still a child.
      if (::waitpid(pid, nullptr, WNOHANG) != 0) continue;
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    fs::remove_all(dir);
  }

  /// In `script`, write a dollar sign of the shell twice before another one: the kubelet expands
  /// commands.
  fs::path job(const std::string& script,
               const std::string& policy = "{maxRestarts: 0, gracePeriod: 1s}") const {
    const fs::path file = dir / "job.yaml";
    std::ofstream(file) << "apiVersion: paceline.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: "
                           "j}\nspec:\n  framework: {type: "
                           "Custom, processesPerReplica: 2}\n"
                        << "  failurePolicy: " << policy
                        << "\n  roles:\n  - name: worker\n    replicas: 2\n    template:\n      "
                           "spec:\n        containers:\n        - "
                           "name: trainer\n"
                        << "          image: x\n          command: [sh, -c]\n          args:\n     "
                           "     - |\n            "
                        << script << "\n";
    return file;
  }

  pid_t begin(const fs::path& file, const std::string& output = "out",
              const std::string& report = "") {
    const pid_t pid = ::fork();
    if (pid == 0) {
      const int log = ::open((dir / output).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      ::dup2(log, 1);
      ::dup2(log, 2);
      ::setenv("TMPDIR", (dir / "tmp").c_str(), 1);
      ::setenv("DIR", dir.c_str(), 1);
      ::setenv("XDG_CACHE_HOME", (dir / "cache").c_str(), 1);
      ::execl(PACELINE_BINARY_DIR "/bin/paceline", "paceline", "run", "-f", file.c_str(),
              report.empty() ? nullptr : "--report", report.c_str(), nullptr);
      ::_exit(126);
    }
    begun.push_back(pid);
    return pid;
  }

  /// What another command of paceline says beside the run.
  std::string ask(const std::string& command, const std::string& argument) const {
    const pid_t pid = ::fork();
    if (pid == 0) {
      const int log = ::open((dir / "said").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      ::dup2(log, 1);
      ::dup2(log, 2);
      ::setenv("TMPDIR", (dir / "tmp").c_str(), 1);
      ::setenv("XDG_CACHE_HOME", (dir / "cache").c_str(), 1);
      ::execl(PACELINE_BINARY_DIR "/bin/paceline", "paceline", command.c_str(), argument.c_str(),
              nullptr);
      ::_exit(126);
    }
    test::ending(pid);
    return slurp(dir / "said");
  }

  int end(pid_t pid) const {
    const auto code = test::ending(pid);
    EXPECT_TRUE(code.has_value()) << slurp(dir / "out");
    return code.value_or(-1);
  }

  bool leaves_nothing() const { return fs::is_empty(dir / "tmp"); }

  std::vector<pid_t> begun;
  const fs::path dir = fs::temp_directory_path() / ("prt-" + std::to_string(::getpid()));
};

TEST_F(RunTest, ASuccessfulJobEndsWithTheTableAndItsLastWords) {
  EXPECT_EQ(
      end(begin(job("echo rank $RANK of $WORLD_SIZE; [ $RANK != 0 ] || echo 'accuracy: 0.99'"))),
      0);
  const std::string out = slurp(dir / "out");
  EXPECT_NE(out.find("[3] rank 3 of 4\n"), std::string::npos) << out;
  EXPECT_NE(out.find("j: Succeeded"), std::string::npos) << out;
  EXPECT_TRUE(out.ends_with("\naccuracy: 0.99\n")) << out;
  EXPECT_TRUE(leaves_nothing());
}

TEST_F(RunTest, AFailedJobHasTheCulpritsExitCode) {
  EXPECT_EQ(end(begin(job("[ $RANK != 2 ] || exit 9; exec sleep 60"))), 9);
  EXPECT_NE(slurp(dir / "out").find("rank 2 on j-worker-1 exited with code 9"), std::string::npos)
      << slurp(dir / "out");
  EXPECT_EQ(end(begin(job("[ $RANK != 2 ] || kill -9 $$$$; exec sleep 60"))), 128 + SIGKILL);
  EXPECT_TRUE(leaves_nothing());
}

TEST_F(RunTest, ALiveRunIsShownAndAnEndedOneRemembered) {
  const pid_t pid =
      begin(job("touch $DIR/up; until [ -e $DIR/go ]; do sleep 0.05; done; echo done"), "out",
            (dir / "report.html").string());
  ASSERT_TRUE(eventually([&] { return fs::exists(dir / "up"); })) << slurp(dir / "out");
  EXPECT_TRUE(eventually([&] {
    return ask("top", "--local").find("j         Running        4") != std::string::npos;
  })) << slurp(dir / "said");
  EXPECT_TRUE(eventually([&] {
    return ask("explain", "run/j").find("j trains with 4 ranks") != std::string::npos;
  })) << slurp(dir / "said");
  EXPECT_EQ(ask("explain", "run/k").find("no run k lives here"), std::strlen("paceline explain: "));
  std::ofstream(dir / "go") << "now";
  EXPECT_EQ(end(pid), 0);
  EXPECT_NE(ask("explain", "run/j").find("j has succeeded"), std::string::npos)
      << slurp(dir / "said");
  EXPECT_NE(ask("top", "--local").find("no jobs on this machine"), std::string::npos);
  EXPECT_NE(slurp(dir / "report.html").find("<h1>j</h1>"), std::string::npos);
  EXPECT_TRUE(leaves_nothing());
}

TEST_F(RunTest, AFailureIsRestartedAsOftenAsThePolicySays) {
  EXPECT_EQ(end(begin(job("[ $RANK != 1 ] || [ $PACELINE_ATTEMPT != 0 ] || exit 1; exit 0",
                          "{maxRestarts: 1, gracePeriod: 1s}"))),
            0);
  EXPECT_NE(slurp(dir / "out").find("restarts            1"), std::string::npos)
      << slurp(dir / "out");
}

TEST_F(RunTest, CtrlCEndsEverything) {
  const pid_t pid = begin(job("echo $$$$ > $DIR/pid-$RANK; while :; do sleep 0.05; done"));
  ASSERT_TRUE(eventually([&] {
    return !slurp(dir / "pid-0").empty() && !slurp(dir / "pid-3").empty();
  })) << slurp(dir / "out");
  const int first = std::stoi(slurp(dir / "pid-0"));
  const int last = std::stoi(slurp(dir / "pid-3"));
  ::kill(pid, SIGINT);
  EXPECT_EQ(end(pid), 128 + SIGINT);
  EXPECT_FALSE(alive(first));
  EXPECT_FALSE(alive(last));
  EXPECT_TRUE(leaves_nothing());
}

TEST_F(RunTest, NothingOutlivesAKilledRun) {
  const pid_t pid = begin(job("echo $$$$ > $DIR/pid-$RANK; while :; do sleep 0.05; done"));
  ASSERT_TRUE(eventually([&] { return !slurp(dir / "pid-3").empty(); })) << slurp(dir / "out");
  const int rank = std::stoi(slurp(dir / "pid-3"));
  ::kill(pid, SIGKILL);
  end(pid);
  EXPECT_TRUE(eventually([&] { return !alive(rank); }));
}

TEST_F(RunTest, TwoRunsAtOnceDoNotClash) {
  const fs::path file = job("sleep 0.5; echo port $MASTER_PORT");
  const pid_t one = begin(file, "one");
  const pid_t two = begin(file, "two");
  EXPECT_EQ(end(one), 0) << slurp(dir / "one");
  EXPECT_EQ(end(two), 0) << slurp(dir / "two");
}

TEST_F(RunTest, ABrokenFileIsExitCodeTwo) {
  std::ofstream(dir / "bad.yaml")
      << "apiVersion: paceline.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: "
         "j}\nspec:\n  roles: []\n  sucessPolicy: AllRanks\n";
  EXPECT_EQ(end(begin(dir / "bad.yaml")), 2);
  EXPECT_NE(slurp(dir / "out").find("bad.yaml:6: spec.sucessPolicy"), std::string::npos)
      << slurp(dir / "out");
  EXPECT_EQ(end(begin(dir / "none.yaml")), 2);
  EXPECT_TRUE(leaves_nothing());
}

}  // namespace
}  // namespace paceline
