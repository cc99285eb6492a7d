// SPDX-License-Identifier: Apache-2.0
// The two sides of bench/gang_writes that are not the operator:
// - `gang_writes write` is the baseline: it creates pods from a template, with plain parallel
//   requests.
// - `gang_writes observe` is the stop watch of both: one watch, from the first pod that appears to
//   the last. bench/scale also has it wait until all pods run, or are gone.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string_view>
#include <thread>
#include <unordered_set>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "common/base/clock.hpp"
#include "common/kube/api/object_version.hpp"
#include "common/kube/connect/connect.hpp"

namespace {

using namespace paceline;
using nlohmann::json;

/// Runs `work(i)` for i in [0, count) on `threads` threads. The first error ends the program: a
/// lost write makes the figure worthless.
template <typename Work>
void in_parallel(int count, int threads, const Work& work) {
  std::atomic<int> next = 0;
  std::vector<std::jthread> pool;
  for (int t = 0; t < threads; ++t) {
    pool.emplace_back([&] {
      for (int i = next++; i < count; i = next++) {
        if (const auto answer = work(i); !answer) {
          std::fprintf(stderr, "gang_writes: %s\n", to_string(answer.error()).c_str());
          std::_Exit(1);
        }
      }
    });
  }
}

/// Reads every event of every pod. The operator's own watch is part of its cost, so the baseline
/// has one too.
std::jthread watch_all_pods(kube::Api& api) {
  return std::jthread([&api](const std::stop_token& stop) {
    const auto listed = api.list(kube::kPods, "", {});
    kube::WatchOptions options;
    if (listed) options.resource_version = json::parse(*listed)["metadata"]["resourceVersion"];
    while (listed && !stop.stop_requested()) {
      const auto watched = api.watch(
          kube::kPods, "", options,
          [&](const kube::WatchEvent& event) {
            options.resource_version = std::to_string(kube::version_of(event.object));
            return true;
          },
          stop);
      if (!watched && !stop.stop_requested()) {
        std::fprintf(stderr, "gang_writes: watch: %s\n", to_string(watched.error()).c_str());
        std::_Exit(1);
      }
    }
  });
}

/// Pods are spread over `nodes` nodes, if there are some: "@NODE@" in the template is replaced by a
/// name of five digits behind "node-".
int write(kube::Api& api, const std::string& ns, const std::string& template_file, int jobs,
          int pods, int threads, int nodes) {
  const std::jthread watcher = watch_all_pods(api);
  std::ifstream file(template_file);
  const json model = json::parse(file);
  const auto name = [&](int i) {
    return "plain-" + std::to_string(i / pods) + "-worker-" + std::to_string(i % pods) + "-0";
  };
  in_parallel(jobs * pods, threads, [&](int i) {
    json pod = model;
    pod["metadata"]["name"] = name(i);
    std::string text = pod.dump();
    if (nodes > 0) {
      std::string digits = std::to_string(i % nodes);
      digits.insert(0, 5 - std::min<std::size_t>(5, digits.size()), '0');
      constexpr std::string_view kPlace = "@NODE@";
      for (auto at = text.find(kPlace); at != std::string::npos; at = text.find(kPlace, at))
        text.replace(at, kPlace.size(), "node-" + digits);
    }
    return api.create(kube::kPods, ns, text);
  });
  return 0;
}

/// What the pods that were seen are: each set grows only.
struct Seen {
  std::unordered_set<std::string> created;
  std::unordered_set<std::string> running;
  std::unordered_set<std::string> gone;
  std::optional<SteadyTime> first;
  SteadyTime last_created{};

  void take(const kube::WatchEvent& event, SteadyTime now) {
    if (!first) first = now;
    const auto at = event.object.find("\"name\":\"");
    const std::string name(event.object.substr(at + 8, event.object.find('"', at + 8) - at - 8));
    if (event.type == kube::WatchEventType::kDeleted) {
      gone.insert(name);
      return;
    }
    if (created.insert(name).second) last_created = now;
    if (event.object.find("\"phase\":\"Running\"") != std::string::npos) running.insert(name);
  }
};

int observe(kube::Api& api, const std::string& ns, int expected, const std::string& until,
            int timeout_s) {
  kube::ListOptions one;  // for the version alone
  one.limit = 1;
  const auto listed = api.list(kube::kPods, ns, one);
  if (!listed) {
    std::fprintf(stderr, "gang_writes: %s\n", to_string(listed.error()).c_str());
    return 1;
  }
  std::puts("watching");
  std::fflush(stdout);
  const SystemClock clock;
  const SteadyTime end = clock.steady() + std::chrono::seconds(timeout_s);
  kube::WatchOptions options;
  options.resource_version = json::parse(*listed)["metadata"]["resourceVersion"];
  Seen seen;
  const auto& awaited = until == "running" ? seen.running
                        : until == "gone"  ? seen.gone
                                           : seen.created;
  Status watched;
  const auto complete = [&] { return static_cast<int>(awaited.size()) >= expected; };
  // A loaded server ends watches that lag by a hundred events, so the watcher resumes.
  while (watched && !complete() && clock.steady() < end) {
    options.timeout = std::chrono::ceil<std::chrono::seconds>(end - clock.steady());
    watched = api.watch(kube::kPods, ns, options, [&](const kube::WatchEvent& event) {
      options.resource_version = std::to_string(kube::version_of(event.object));
      if (event.type != kube::WatchEventType::kBookmark) seen.take(event, clock.steady());
      return !complete();
    });
  }
  if (!complete()) {
    std::fprintf(stderr, "gang_writes: saw %zu of %d pods %s: %s\n", awaited.size(), expected,
                 until.c_str(), watched ? "timed out" : to_string(watched.error()).c_str());
    return 1;
  }
  const auto since_first = [&](SteadyTime at) {
    return std::chrono::duration<double>(at - *seen.first).count();
  };
  const json result = {{"pods", expected},
                       {"seconds", since_first(clock.steady())},
                       {"created_s", since_first(std::max(seen.last_created, *seen.first))}};
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The baseline and the stop watch of the benchmark of written pods");
  app.require_subcommand(1);
  std::string ns = "default";
  int jobs = 100;
  int pods = 20;
  int connections = 32;
  int timeout_s = 300;
  int nodes = 0;
  std::string until = "created";
  std::string template_file;
  app.add_option("--namespace", ns);
  app.add_option("--jobs", jobs);
  app.add_option("--pods", pods, "pods of a job");
  CLI::App* writer = app.add_subcommand("write");
  writer->add_option("--template", template_file, "a pod as JSON")->required();
  writer->add_option("--connections", connections);
  writer->add_option("--nodes", nodes, "replace @NODE@ by the names of this many nodes");
  CLI::App* observer = app.add_subcommand("observe");
  observer->add_option("--timeout", timeout_s, "seconds");
  observer->add_option("--until", until)->check(CLI::IsMember({"created", "running", "gone"}));
  CLI11_PARSE(app, argc, argv);

  const auto config = paceline::kube::load_default();
  if (!config) {
    std::fprintf(stderr, "gang_writes: %s\n", paceline::to_string(config.error()).c_str());
    return 2;
  }
  const paceline::SystemClock clock;
  paceline::kube::ConnectOptions options;
  options.max_connections = static_cast<std::size_t>(connections);
  const auto api = paceline::kube::make_client(*config, clock, options);
  if (!api) {
    std::fprintf(stderr, "gang_writes: %s\n", paceline::to_string(api.error()).c_str());
    return 2;
  }
  if (observer->parsed()) return observe(**api, ns, jobs * pods, until, timeout_s);
  return write(**api, ns, template_file, jobs, pods, connections, nodes);
}
