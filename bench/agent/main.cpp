// SPDX-License-Identifier: Apache-2.0
// What the agent costs its node. The real agent runs as a process of its own. Its kubelet (gRPC)
// and its API server are fakes, and the machine that it probes is the largest recorded one. The
// launcher's own client hands over the rings that it reads. bench/agent/run lists the bars.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "agent/checks/check.hpp"
#include "agent/probe/formats/nvml_json.hpp"
#include "agent/probe/probe.hpp"
#include "bench/agent/account.hpp"
#include "bench/agent/played_kubelet.hpp"
#include "common/kube/fake/cluster.hpp"
#include "common/kube/fake/server.hpp"
#include "common/telemetry/slot/slot_client.hpp"
#include "testing/node_tree.hpp"
#include "testing/ring_fixture.hpp"
#include "testing/runtime_fixture.hpp"

extern char** environ;

namespace {

using namespace paceline;  // NOLINT(google-build-using-namespace): this file belongs to no part
using namespace std::chrono_literals;
using bench::Account;
using telemetry::test::TestRing;

constexpr const char* kLargest = "dgx-a100-like";
constexpr int kRanks = 8;
constexpr int kStepsPerSecond = 100;
constexpr auto kStep = std::chrono::nanoseconds(1s) / kStepsPerSecond;
constexpr auto kScrapeInterval = 15s;
constexpr double kMostProbeSeconds = 2;
constexpr double kMostShare = 0.01;
constexpr double kMostMib = 64;
constexpr double kMostGrowthMib = 1;

struct Options {
  std::string agent;
  int port = 0;
  int seconds = 60;
  double records = 1e8;
};

/// An exception, so that destructors end the agent.
[[noreturn]] void give_up(const std::string& why) { throw std::runtime_error(why); }

void eventually(const std::string& what, const std::function<bool()>& fact) {
  const auto until = std::chrono::steady_clock::now() + 60s;
  while (!fact()) {
    if (std::chrono::steady_clock::now() >= until) give_up("waited a minute for: " + what);
    std::this_thread::sleep_for(50ms);
  }
}

/// The longest of a few runs; the first also warms the caches that are warm for a real agent.
double probe_and_verify_seconds(const agent::NodeTree& tree) {
  const auto library = agent::read_nvml_json(agent::NodeTree::nvml_json(kLargest), kLargest);
  if (!library) give_up(library.error().message);
  double longest = 0;
  for (int i = 0; i < 5; ++i) {
    const auto began = std::chrono::steady_clock::now();
    const auto hardware = agent::probe_hardware(tree.root(), **library);
    const auto findings =
        agent::run_checks(agent::Node(hardware, agent::read_settings(tree.root(), hardware)));
    if (findings.empty() || hardware.gpu.gpus.empty()) give_up("the recorded machine is empty");
    longest = std::max(
        longest, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }
  return longest;
}

std::string get(int port, const std::string& path) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return {};
  const std::string request =
      "GET " + path + " HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n";
  if (::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size()))
    return {};
  std::string text;
  std::vector<char> bytes(65536);
  for (ssize_t got = 0; (got = ::recv(socket.get(), bytes.data(), bytes.size(), 0)) > 0;)
    text.append(bytes.data(), static_cast<std::size_t>(got));
  return text;
}

/// The sum over all ranks.
double sum_of(const std::string& text, const std::string& family) {
  double sum = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(family + "{")) sum += std::stod(line.substr(line.rfind(' ')));
  }
  return sum;
}

class AgentProcess {
 public:
  AgentProcess(const Options& options, const agent::NodeTree& tree,
               const std::filesystem::path& scratch, int api_port) {
    std::ofstream(scratch / "kubeconfig")
        << "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: "
           "{cluster: k, user: u}}], "
           "clusters: [{name: k, cluster: {server: 'http://127.0.0.1:"
        << api_port << "'}}], users: [{name: u, user: {token: t}}]}\n";
    std::vector<std::string> words{options.agent,
                                   "--node-name=bench",
                                   "--sys=" + (tree.folder() / "sys").string(),
                                   "--proc=" + (tree.folder() / "proc").string(),
                                   "--kubeconfig=" + (scratch / "kubeconfig").string(),
                                   "--listen-address=127.0.0.1",
                                   "--listen-port=" + std::to_string(options.port),
                                   "--runtime=" + (scratch / "image").string(),
                                   "--runtime-state=" + (scratch / "node").string(),
                                   "--kubelet-dir=" + (scratch / "kubelet").string(),
                                   "--pod-records-per-second=1000000000"};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    const std::string log = (scratch / "agent.log").string();
    ::posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ::posix_spawn_file_actions_adddup2(&files, 1, 2);
    const int failed =
        ::posix_spawn(&pid_, words[0].c_str(), &files, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&files);
    if (failed != 0) give_up("cannot start " + options.agent);
  }
  AgentProcess(const AgentProcess&) = delete;
  AgentProcess& operator=(const AgentProcess&) = delete;
  ~AgentProcess() {
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

/// One pod: a launcher's client and the rings of its ranks.
class Pod {
 public:
  explicit Pod(const std::filesystem::path& slot)
      : client_(slot, {"bench", "worker", 0, 0}, clock_) {}

  /// Makes new rings, as a restarted gang does.
  void begin(std::uint32_t attempt, std::uint32_t capacity) {
    client_.begin_attempt(attempt, 0, 0, kRanks);
    rings_.clear();
    for (int rank = 0; rank < kRanks; ++rank) {
      rings_.push_back(std::make_unique<TestRing>(capacity));
      rings_.back()->header().capabilities = PACELINE_CAPABILITY_HOST_MARKS;
      paceline_ring_offer offer{};
      offer.world_rank = rank;
      offer.attempt = attempt;
      client_.add(next_key_++, offer, rings_.back()->fd());
    }
    eventually("the agent takes the pod", [this] {
      client_.tend();
      return client_.held();
    });
  }

  void step(std::uint64_t count) {
    const auto now = static_cast<std::uint64_t>(clock_.steady().time_since_epoch().count());
    for (auto& ring : rings_) {
      ring->header().heartbeat_ns = now;
      for (std::uint64_t i = 0; i < count; ++i) ring->publish(telemetry::test::step(++number_));
    }
    published_ += count * rings_.size();
    client_.tend();
  }
  std::uint64_t published() const { return published_; }

 private:
  SystemClock clock_;
  telemetry::SlotClient client_;
  std::vector<std::unique_ptr<TestRing>> rings_;
  std::uint64_t next_key_ = 1;
  std::uint64_t number_ = 0;
  std::uint64_t published_ = 0;
};

struct Cost {
  double share = 0;
  double resident_mib = 0;
};

/// 8 ranks at 100 steps a second, scraped as by Prometheus.
Cost everyday(const Options& options, const Account& account, Pod& pod) {
  const auto began = std::chrono::steady_clock::now();
  const double before = account.cpu_seconds();
  auto scrape_at = began + kScrapeInterval;
  for (int i = 0; i < options.seconds * kStepsPerSecond; ++i) {
    std::this_thread::sleep_until(began + i * kStep);
    pod.step(1);
    if (std::chrono::steady_clock::now() < scrape_at) continue;
    scrape_at += kScrapeInterval;
    if (!get(options.port, "/metrics").contains("paceline_steps_total{"))
      give_up("a scrape has no ranks");
  }
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  Cost cost{(account.cpu_seconds() - before) / wall, account.memory_mib("VmRSS")};
  const auto all = static_cast<double>(pod.published());
  eventually("every record is counted",
             [&] { return sum_of(get(options.port, "/metrics"), "paceline_steps_total") == all; });
  return cost;
}

struct Soak {
  double read = 0;
  double dropped = 0;
  double seconds = 0;
  double growth_mib = 0;
};

/// Rings of the largest size that a reader accepts, written faster than they are read. Only records
/// that were read count.
Soak soak(const Options& options, const Account& account, Pod& pod) {
  constexpr std::uint64_t kBatch = PACELINE_RING_CAPACITY_MAX / 4;
  pod.begin(1, PACELINE_RING_CAPACITY_MAX);
  const std::string first = get(options.port, "/metrics");
  const double steps = sum_of(first, "paceline_steps_total");
  const double dropped = sum_of(first, "paceline_dropped_records_total");
  const auto began = std::chrono::steady_clock::now();
  Soak result;
  double settled = 0;
  while (result.read < options.records) {
    const auto next =
        // a ring holds four batches between two reads
        std::chrono::steady_clock::now() + 60ms;
    pod.step(kBatch);
    std::this_thread::sleep_until(next);
    const std::string text = get(options.port, "/metrics");
    if (text.empty()) give_up("the agent does not answer");
    result.read = sum_of(text, "paceline_steps_total") - steps;
    result.dropped = sum_of(text, "paceline_dropped_records_total") - dropped;
    // By then every part of the agent has run.
    if (settled == 0 && result.read >= options.records / 10) settled = account.memory_mib("VmRSS");
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  result.growth_mib = std::max(0.0, account.memory_mib("VmRSS") - settled);
  return result;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--agent") {
      options.agent = value;
    } else if (name == "--port") {
      options.port = std::atoi(value.c_str());
    } else if (name == "--seconds") {
      options.seconds = std::atoi(value.c_str());
    } else if (name == "--records") {
      options.records = std::atof(value.c_str());
    } else {
      give_up("unknown option " + name + "; there are --seconds and --records");
    }
  }
  if (argc % 2 == 0 || options.agent.empty() || options.port <= 0 || options.seconds < 1 ||
      options.records < 10)
    give_up("usage: bench_agent --agent FILE --port N [--seconds 60] [--records 1e8]");
  return options;
}

double rounded(double value, double parts) { return std::round(value * parts) / parts; }

/// The exit code: 0 within all bars, 1 above one.
int measure(const Options& options) {
  const agent::NodeTree tree(kLargest);
  const agent::Scratch scratch;
  agent::make_runtime(scratch / "image", "bench");
  const SystemClock clock;
  kube::FakeCluster cluster(clock);
  if (!kube::make_fake_api(cluster)->create(
          kube::kNodes, "", R"({"apiVersion":"v1","kind":"Node","metadata":{"name":"bench"}})"))
    give_up("the fake API server takes no Node");
  const auto api = kube::FakeServer::start(cluster);
  if (!api) give_up(api.error().message);

  const double probe = probe_and_verify_seconds(tree);
  std::cout << "probe and verify of " << kLargest << ": " << probe << " s (the longest of 5)\n";
  bench::PlayedKubelet kubelet(scratch / "kubelet", "team", "bench", 1);
  const AgentProcess process(options, tree, scratch / "", (*api)->port());
  const Account account(process.pid());
  if (!kubelet.slots_are_healthy()) give_up("the agent's slots are not healthy");
  const std::string slot = kubelet.allocate("slot-0");
  if (slot.empty()) give_up("the agent gives no slot");
  Pod pod(slot);
  pod.begin(0, PACELINE_RING_CAPACITY);
  std::cout << "processor time by " << account.by() << "; " << kRanks << " ranks at "
            << kStepsPerSecond << " steps/s for " << options.seconds << " s" << std::endl;
  const Cost cost = everyday(options, account, pod);
  std::cout << cost.share * 100 << " % of a core, " << cost.resident_mib << " MiB resident"
            << std::endl;
  const Soak full = soak(options, account, pod);
  const double peak = account.memory_mib("VmHWM");
  std::cout << full.read << " records read in " << full.seconds << " s, " << full.dropped
            << " overwritten before; grew by " << full.growth_mib << " MiB, peak " << peak
            << " MiB\n";

  const bool good = probe <= kMostProbeSeconds && cost.share <= kMostShare &&
                    cost.resident_mib <= kMostMib && peak <= kMostMib &&
                    full.growth_mib <= kMostGrowthMib;
  std::cout << nlohmann::json{{"bench", "agent"},
                              {"ratio", rounded(kMostShare / std::max(cost.share, 1e-6), 100)},
                              {"probe_verify_s", rounded(probe, 10000)},
                              {"cpu_share", rounded(cost.share, 100000)},
                              {"cpu_by", account.by()},
                              {"rss_mib", rounded(cost.resident_mib, 10)},
                              {"peak_mib", rounded(peak, 10)},
                              {"soak_records", full.read},
                              {"soak_records_per_s", rounded(full.read / full.seconds, 1)},
                              {"soak_growth_mib", rounded(full.growth_mib, 100)}}
                   .dump()
            << std::endl;
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return measure(parse(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "bench: " << error.what() << "\n";
    return 2;
  }
}
