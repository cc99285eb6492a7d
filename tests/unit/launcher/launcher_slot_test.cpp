// SPDX-License-Identifier: Apache-2.0
// A real launcher in a pod with a slot: the node's agent serves its ranks' metrics exactly while it
// has the ranks.
#include "common/base/log.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>

#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/collect/slot_collector.hpp"
#include "common/net/ports.hpp"
#include "common/telemetry/metrics/text_sink.hpp"
#include "tests/unit/launcher/program.hpp"

namespace paceline::launcher {
namespace {

namespace fs = std::filesystem;
using test::eventually;

/// Empty if there is no answer.
std::string metrics_at(std::uint16_t port) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return {};
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n";
  if (::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return {};
  std::string text;
  char bytes[4096];
  for (ssize_t got = 0; (got = ::recv(socket.get(), bytes, sizeof bytes, 0)) > 0;)
    text.append(bytes, static_cast<std::size_t>(got));
  return text;
}

struct LauncherSlot : ::testing::Test {
  LauncherSlot() { fs::create_directories(dir / "slot"); }
  ~LauncherSlot() override {
    if (pid > 0) ::kill(pid, SIGKILL);
    if (pid > 0) ::waitpid(pid, nullptr, 0);
    fs::remove_all(dir);
  }

  void start_agent() {
    agent.emplace("node-a", clock);
    const auto opened = agent->open("slot-0", dir / "slot");
    ASSERT_TRUE(opened) << opened.error().message;
  }

  /// One rank that waits for a signal of the test.
  void launch() {
    const std::string rendezvous = "127.0.0.1:" + std::to_string(rendezvous_port.port());
    std::vector<std::string> entries{"PACELINE_JOB_NAME=job",
                                     "PACELINE_JOB_NAMESPACE=forged",
                                     "PACELINE_JOB_UID=uid",
                                     "PACELINE_ROLE=worker",
                                     "PACELINE_NODE_RANK=0",
                                     "PACELINE_NODE_COUNT=1",
                                     "PACELINE_POD_IP=127.0.0.1",
                                     "PACELINE_TOKEN=secret",
                                     "PACELINE_MASTER_PORT=0",
                                     "PATH=/usr/bin:/bin",
                                     "PACELINE_RENDEZVOUS_ADDRESS=" + rendezvous,
                                     "PACELINE_RENDEZVOUS_LISTEN=" + rendezvous,
                                     "PACELINE_STATE_DIR=" + (dir / "state").string(),
                                     "PACELINE_SLOT_DIR=" + (dir / "slot").string(),
                                     "PACELINE_HTTP_LISTEN=127.0.0.1:" + std::to_string(port)};
    std::vector<std::string> words{
        PACELINE_BINARY_DIR "/bin/paceline-launcher",
        "run",
        "--",
        "sh",
        "-c",
        "until [ -e '" + (dir / "go").string() + "' ]; do sleep 0.1; done"};
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> all;
      for (auto& text : texts) all.push_back(text.data());
      all.push_back(nullptr);
      return all;
    };
    const auto environment = pointers(entries);
    const auto argv = pointers(words);
    pid = ::fork();
    if (pid != 0) return;
    const int log = ::open((dir / "log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    ::dup2(log, 1);
    ::dup2(log, 2);
    ::execve(words[0].c_str(), argv.data(), environment.data());
    ::_exit(126);
  }

  /// The launcher's own.
  bool launcher_serves() const { return metrics_at(port).contains("paceline_profiler_state{"); }
  bool agent_serves() {
    agent->pump();
    agent->tell({{"slot-0", paceline::agent::PodName{"team", "job-worker-0-0"}}}, clock.steady());
    telemetry::TextSink sink;
    agent->export_metrics(sink);
    return sink.text().contains(
        "paceline_profiler_state{namespace=\"team\",job=\"job\",role=\"worker\",rank=\"0\",node="
        "\"node-a\"");
  }

  const fs::path dir = fs::temp_directory_path() / ("pls-" + std::to_string(::getpid()));
  // held, because the launcher listens there only later
  const net::HeldPort rendezvous_port{"127.0.0.1"};
  const net::HeldPort http_port{"127.0.0.1"};
  const std::uint16_t port = http_port.port();
  SystemClock clock;
  std::optional<agent::SlotCollector> agent;
  pid_t pid = 0;
};

TEST_F(LauncherSlot, WhatTheAgentServesTheLauncherDoesNot) {
  launch();
  ASSERT_TRUE(eventually([&] { return launcher_serves(); })) << test::slurp(dir / "log");
  for (int life = 0; life < 2; ++life) {
    start_agent();
    ASSERT_TRUE(eventually([&] { return agent_serves(); })) << test::slurp(dir / "log");
    ASSERT_TRUE(eventually([&] { return !launcher_serves(); })) << metrics_at(port);
    EXPECT_TRUE(metrics_at(port).contains("paceline_job_replicas_gathered{"))
        << "of the job it speaks as ever";
    agent.reset();
    ASSERT_TRUE(eventually([&] { return launcher_serves(); })) << "its agent has gone";
  }
  std::ofstream(dir / "go") << "\n";
  EXPECT_EQ(test::ending(pid), 0) << test::slurp(dir / "log");
  pid = 0;
}

}  // namespace
}  // namespace paceline::launcher
