// SPDX-License-Identifier: Apache-2.0
// Real launchers as child processes, with small shell scripts as ranks: the guarantees of the state
// machines with real sockets, signals and deaths.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/contract/labels.hpp"
#include "common/net/ports.hpp"
#include "tests/unit/launcher/program.hpp"

namespace paceline::launcher {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

using test::alive;
using test::eventually;
using test::slurp;

inline const std::string kLauncher = PACELINE_BINARY_DIR "/bin/paceline-launcher";

struct LauncherProcess : ::testing::Test {
  LauncherProcess() {
    fs::remove_all(dir);
    fs::create_directories(dir);
  }
  ~LauncherProcess() override {
    for (const auto& [node, pid] : running) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    fs::remove_all(dir);
  }

  /// Starts the launcher of one node; sh runs `script` as every rank.
  pid_t launch(int node, const std::string& script, std::map<std::string, std::string> more = {}) {
    return launch_command(node, {"sh", "-c", script}, std::move(more));
  }

  /// Starts the launcher of one node with this command for every rank.
  pid_t launch_command(int node, const std::vector<std::string>& command,
                       std::map<std::string, std::string> more) {
    std::map<std::string, std::string> variables{
        {"PACELINE_JOB_NAME", "job"},
        {"PACELINE_JOB_UID", "uid"},
        {"PACELINE_ROLE", "worker"},
        {"PACELINE_NODE_RANK", std::to_string(node)},
        {"PACELINE_NODE_COUNT", std::to_string(nodes)},
        {"PACELINE_POD_NAME", "job-worker-" + std::to_string(node)},
        {"PACELINE_POD_IP", "127.0.0.1"},
        {"PACELINE_PROCESSES_PER_REPLICA", "2"},
        {"PACELINE_RENDEZVOUS_ADDRESS", address},
        {"PACELINE_RENDEZVOUS_LISTEN", address},
        {"PACELINE_MASTER_PORT", "0"},
        {"PACELINE_TOKEN", "secret"},
        {"PACELINE_STARTUP_TIMEOUT", "30s"},
        {"PACELINE_MAX_RESTARTS", "1"},
        {"PACELINE_GRACE_PERIOD", "2s"},
        {"PACELINE_STATE_DIR", (dir / std::to_string(node)).string()},
        {"PACELINE_TERMINATION_LOG", message_file(node).string()},
        {"PATH", "/usr/bin:/bin"},
        {"DIR", dir.string()}};
    for (const auto& [name, value] : more) variables[name] = value;
    std::vector<std::string> entries;
    for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
    std::vector<char*> environment;
    for (auto& entry : entries) environment.push_back(entry.data());
    environment.push_back(nullptr);
    std::vector<std::string> words{kLauncher, "run", "--"};
    words.insert(words.end(), command.begin(), command.end());
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t pid = ::fork();
    if (pid == 0) {
      const int log = ::open((dir / ("log" + std::to_string(node))).c_str(),
                             O_WRONLY | O_CREAT | O_APPEND, 0644);
      ::dup2(log, 1);
      ::dup2(log, 2);
      ::execve(kLauncher.c_str(), argv.data(), environment.data());
      ::_exit(126);
    }
    running[node] = pid;
    return pid;
  }

  /// Exit code, or 1000 + signal.
  int wait(int node) {
    const pid_t pid = running.at(node);
    const auto code = test::ending(pid);
    EXPECT_TRUE(code.has_value()) << log(node);
    if (code) running.erase(node);
    return code.value_or(-1);
  }

  fs::path message_file(int node) const { return dir / ("message" + std::to_string(node)); }
  nlohmann::json message(int node) const {
    return nlohmann::json::parse(slurp(message_file(node)), nullptr, false);
  }
  std::string log(int node) const { return slurp(dir / ("log" + std::to_string(node))); }
  int count(const std::string& prefix) const {
    int found = 0;
    for (const auto& entry : fs::directory_iterator(dir))
      found += entry.path().filename().string().starts_with(prefix) ? 1 : 0;
    return found;
  }

  const fs::path dir = fs::temp_directory_path() / ("plt-" + std::to_string(::getpid()));
  const net::HeldPort held{"127.0.0.1"};  // the launcher listens there only later
  const std::uint16_t port = held.port();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  int nodes = 2;
  std::map<int, pid_t> running;
};

}  // namespace paceline::launcher
