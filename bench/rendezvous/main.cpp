// SPDX-License-Identifier: Apache-2.0
// What rank 0's launcher costs in a large gang. It is the real program; the other members are
// played by processes of this program, over loopback.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "common/net/ports.hpp"
#include "testing/played_gang.hpp"

namespace {

using namespace paceline;
namespace fs = std::filesystem;

// The launcher before the table was shared, at 2,048 members.
constexpr double kRecordedSeconds = 14.4;
constexpr double kRecordedMebibytes = 2048;
constexpr int kComparedMembers = 2048;
constexpr std::chrono::seconds kLimit{180};

struct Bar {
  int members;
  double cpu_seconds;
  double mebibytes;
};
constexpr std::array kBars{Bar{2048, 1, 64}, Bar{10'000, 5, 128}};

struct Cost {
  testing::PlayedResult gang;
  double cpu_seconds = 0;
  double mebibytes = 0;
  bool succeeded = false;
};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "rendezvous: %s\n", what.c_str());
  std::exit(2);
}

pid_t start_rank_zero(const std::string& launcher, int members, const std::string& address,
                      const fs::path& folder) {
  const std::vector<std::string> entries{"PACELINE_JOB_NAME=job",
                                         "PACELINE_JOB_UID=uid",
                                         "PACELINE_ROLE=worker",
                                         "PACELINE_NODE_RANK=0",
                                         "PACELINE_NODE_COUNT=" + std::to_string(members),
                                         "PACELINE_POD_NAME=job-worker-0-0",
                                         "PACELINE_POD_IP=127.0.0.1",
                                         "PACELINE_RENDEZVOUS_ADDRESS=" + address,
                                         "PACELINE_RENDEZVOUS_LISTEN=" + address,
                                         "PACELINE_MASTER_PORT=0",
                                         "PACELINE_TOKEN=secret",
                                         "PACELINE_STARTUP_TIMEOUT=3m",
                                         "PACELINE_STATE_DIR=" + (folder / "state").string(),
                                         "PATH=/usr/bin:/bin"};
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  std::vector<char*> environment;
  for (const auto& entry : entries) environment.push_back(const_cast<char*>(entry.c_str()));
  environment.push_back(nullptr);
  const int log = ::open((folder / "log").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ::dup2(log, 1);
  ::dup2(log, 2);
  ::execle(launcher.c_str(), launcher.c_str(), "run", "--", "true", nullptr, environment.data());
  ::_exit(126);
}

/// Plays a part of the members in a child, which writes its result into the pipe.
pid_t play(const testing::PlayedSettings& settings, int pipe) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  const auto result = testing::PlayedGang(settings).run(kLimit);
  [[maybe_unused]] const ssize_t ignored = ::write(pipe, &result, sizeof result);
  ::_exit(0);
}

Cost measure(const std::string& launcher, int members, int protocol, int processes,
             std::chrono::milliseconds hold, const fs::path& folder) {
  const net::HeldPort port("127.0.0.1");
  testing::PlayedSettings settings;
  settings.server = {"127.0.0.1", port.port()};
  settings.node_count = members;
  settings.protocol = protocol;
  settings.hold = hold;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("no pipe");
  const pid_t rank_zero =
      start_rank_zero(launcher, members, net::to_string(settings.server), folder);
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    settings.first = 1 + (members - 1) * i / processes;
    settings.last = 1 + (members - 1) * (i + 1) / processes;
    children.push_back(play(settings, ends[1]));
  }
  Cost cost;
  for (const pid_t child : children) {
    testing::PlayedResult part;
    if (::read(ends[0], &part, sizeof part) != sizeof part) fail("a process of members failed");
    ::waitpid(child, nullptr, 0);
    cost.gang.tables += part.tables;
    cost.gang.from_server += part.from_server;
    cost.gang.lost += part.lost;
    cost.gang.succeeded += part.succeeded;
    cost.gang.table_seconds = std::max(cost.gang.table_seconds, part.table_seconds);
  }
  if (cost.gang.succeeded < members - 1) ::kill(rank_zero, SIGKILL);
  int status = 0;
  rusage used{};
  ::wait4(rank_zero, &status, 0, &used);
  for (const int end : ends) ::close(end);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  cost.cpu_seconds = seconds(used.ru_utime) + seconds(used.ru_stime);
  cost.mebibytes = static_cast<double>(used.ru_maxrss) / 1024;
  cost.succeeded = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return cost;
}

void show(const char* name, int members, const Cost& cost) {
  std::printf(
      "%-8s %6d members: %6.2f s of CPU, %5.0f MiB, all started after %.1f s, %d tables from rank "
      "0, %d lost, %s\n",
      name, members, cost.cpu_seconds, cost.mebibytes, cost.gang.table_seconds,
      cost.gang.from_server, cost.gang.lost, cost.succeeded ? "succeeded" : "failed");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("CPU time and memory of rank 0's launcher in large gangs");
  std::vector<int> sizes{256, 2048, 10'000};
  std::string baseline;
  int processes = 4;
  int hold_ms = 4000;
  app.add_option("--members", sizes, "sizes of the gang");
  app.add_option("--baseline", baseline, "an earlier launcher, of protocol 1");
  app.add_option("--processes", processes, "that play the other members");
  app.add_option("--hold", hold_ms, "milliseconds that the gang runs");
  CLI11_PARSE(app, argc, argv);

  const fs::path own = fs::read_symlink("/proc/self/exe").parent_path() / "paceline-launcher";
  std::string folder = (fs::temp_directory_path() / "bench-rendezvous-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) fail("no temporary directory");
  const std::chrono::milliseconds hold(hold_ms);
  nlohmann::json line{{"bench", "rendezvous"}};
  bool good = true;
  double ours = 0;
  for (const int members : sizes) {
    const Cost cost =
        measure(own.string(), members, rendezvous::kProtocol, processes, hold, folder);
    show("ours", members, cost);
    if (members == kComparedMembers) ours = cost.cpu_seconds;
    const std::string size = std::to_string(members);
    line["cpu_s_" + size] = std::round(cost.cpu_seconds * 1000) / 1000;
    line["mib_" + size] = std::round(cost.mebibytes);
    line["lost_" + size] = cost.gang.lost;
    good = good && cost.succeeded && cost.gang.lost == 0;
    for (const Bar& bar : kBars)
      good = good && (bar.members != members ||
                      (cost.cpu_seconds <= bar.cpu_seconds && cost.mebibytes <= bar.mebibytes));
  }
  double before = kRecordedSeconds;
  line["baseline"] = "a table for each member, as recorded at 2,048";
  line["baseline_mib"] = kRecordedMebibytes;
  if (!baseline.empty()) {
    const Cost cost = measure(baseline, kComparedMembers, 1, processes, hold, folder);
    show("baseline", kComparedMembers, cost);
    before = cost.cpu_seconds;
    line["baseline"] = "a table for each member, measured at 2,048";
    line["baseline_mib"] = std::round(cost.mebibytes);
    line["baseline_lost"] = cost.gang.lost;
  }
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  line["baseline_cpu_s"] = before;
  line["ratio"] = ours > 0 ? std::round(before / ours * 10) / 10 : 0;
  std::printf("%s\n", line.dump().c_str());
  return good ? 0 : 1;
}
