// SPDX-License-Identifier: Apache-2.0
// How long one pass of the scheduler takes to place a 1,024-pod gang. The fleet has 10,000 nodes of
// 8 accelerators under leaves, spines and zones, 5 % of them tainted. It is 60 % full of other
// gangs, and is fragmented. The baseline places one pod at a
// time, as a scheduler without gangs does: it applies the same filter, looks at every node for each
// pod, and takes the tightest. Both run interleaved in one process. Then a pass over 500 queued
// gangs of 50 shapes, which do not fit and may preempt, and one over 500 gangs that all start. Exit
// 1 above 50 ms (p99) for the gang, or above 100 ms (median) for the queue.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/plan/queue/scheduler.hpp"

namespace {

using namespace paceline;  // NOLINT(google-build-using-namespace): this file belongs to no part
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr int kNodes = 10000;
constexpr int kPods = 1024;
constexpr int kAccelerators = 8;
constexpr int kNodesOfLeaf = 16;
constexpr int kLeavesOfSpine = 16;
constexpr int kSpinesOfZone = 10;
constexpr int kOneTaintedOf = 20;
constexpr double kFull = 0.6;
constexpr double kLimitMs = 50;
constexpr int kQueued = 500;
constexpr int kShapes = 50;
constexpr double kQueueLimitMs = 100;
constexpr int kQueueRounds = 20;
constexpr int kRoundsPerBaseline = 50;

observe::Resources amount(int accelerators, int pods) {
  observe::Resources resources;
  resources.cpu = accelerators * 12000LL;
  resources.memory = accelerators * (64LL << 30) * 1000;
  resources.pods = pods * 1000LL;
  resources.set("nvidia.com/gpu", accelerators * 1000LL);
  return resources;
}

struct Fleet {
  std::vector<observe::NodeView> nodes;
  plan::SchedulerInput input;
};

/// Takes accelerators one, two or four at a time on random nodes until the share is reached.
/// Sixteen such pods make a running gang.
void fill(Fleet& fleet, std::mt19937_64& random) {
  std::uniform_int_distribution<std::size_t> any_node(0, kNodes - 1);
  std::uniform_int_distribution<int> any_size(0, 2);
  const auto wanted = static_cast<long>(kFull * kNodes * kAccelerators);
  for (long taken = 0; taken < wanted;) {
    plan::Room& room = fleet.input.rooms[any_node(random)];
    const int accelerators = 1 << any_size(random);
    const observe::Resources pod = amount(accelerators, 1);
    if (room.free.times(pod, 1) == 0) continue;
    if (fleet.input.running.empty() || fleet.input.running.back().pods.size() == 16) {
      const std::string name = "running-" + std::to_string(fleet.input.running.size());
      fleet.input.running.push_back(
          {name, name, "team-" + std::to_string(fleet.input.running.size() % 7), 0, {}, false, {}});
    }
    room.free.subtract(pod);
    fleet.input.running.back().pods.emplace_back(room.node->meta.name, pod);
    taken += accelerators;
  }
}

Fleet make_fleet() {
  Fleet fleet;
  for (int i = 0; i < kNodes; ++i) {
    observe::NodeView& node = fleet.nodes.emplace_back();
    node.meta.name = "node-" + std::to_string(i);
    node.ready = true;
    node.labels.emplace_back("kubernetes.io/arch", "amd64");
    node.labels.emplace_back("kubernetes.io/hostname", node.meta.name);
    node.labels.emplace_back("pool", "training");
    node.taints = {{"nvidia.com/gpu", "", "NoSchedule"}};
    if (i % kOneTaintedOf == 7) node.taints.push_back({"repair", "", "NoSchedule"});
    const int leaf = i / kNodesOfLeaf;
    const int spine = leaf / kLeavesOfSpine;
    node.domains = {observe::SharedText(), observe::SharedText("leaf-" + std::to_string(leaf)),
                    observe::SharedText("spine-" + std::to_string(spine)),
                    observe::SharedText("zone-" + std::to_string(spine / kSpinesOfZone))};
    node.allocatable = amount(kAccelerators, 110);
  }
  for (const auto& node : fleet.nodes) fleet.input.rooms.push_back({&node, node.allocatable});
  std::mt19937_64 random(1);
  fill(fleet, random);
  plan::Need need{"worker", amount(2, 1), {}, kPods};
  need.constraints = plan::read_constraints(nlohmann::json::parse(
      R"({"nodeSelector": {"pool": "training"}, "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]})"));
  fleet.input.queued.push_back({"gang", "gang", "team-0", "team-0", 0, {}, {need}});
  return fleet;
}

/// The fleet with a long queue of gangs that wait for room.
plan::SchedulerInput with_queue(const Fleet& fleet) {
  plan::SchedulerInput input = fleet.input;
  const plan::QueuedGang one = input.queued[0];
  input.queued.clear();
  for (int i = 0; i < kQueued; ++i) {
    plan::QueuedGang& gang = input.queued.emplace_back(one);
    gang.id = gang.name = "queued-" + std::to_string(i);
    gang.priority = 1;
    gang.needs[0].each = amount(kAccelerators, 1);
    gang.needs[0].count = kNodes - i % kShapes;
  }
  return input;
}

/// The fleet without its gangs, and as many that can start at once.
plan::SchedulerInput with_burst(const Fleet& fleet) {
  plan::SchedulerInput input = fleet.input;
  const plan::QueuedGang one = input.queued[0];
  input.queued.clear();
  input.running.clear();
  for (plan::Room& room : input.rooms) room.free = room.node->allocatable;
  for (int i = 0; i < kQueued; ++i) {
    plan::QueuedGang& gang = input.queued.emplace_back(one);
    gang.id = gang.name = "queued-" + std::to_string(i);
    gang.needs[0].count = 20 + i % kShapes;
  }
  return input;
}

/// Nodes in rank order; empty if the gang does not fit.
std::vector<std::string> one_by_one(const plan::Need& need, std::vector<plan::Room> rooms) {
  std::vector<std::string> chosen;
  for (int pod = 0; pod < need.count; ++pod) {
    plan::Room* best = nullptr;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (plan::Room& room : rooms) {
      if (room.free.times(need.each, 1) == 0 || room.free.cpu >= least ||
          !refusal(need.constraints, *room.node).empty())
        continue;
      best = &room;
      least = room.free.cpu;
    }
    if (best == nullptr) return {};
    best->free.subtract(need.each);
    chosen.push_back(best->node->meta.name);
  }
  return chosen;
}

template <typename F>
double timed(F&& call) {
  const auto began = std::chrono::steady_clock::now();
  call();
  return Milliseconds(std::chrono::steady_clock::now() - began).count();
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1,
                         static_cast<std::size_t>(share * static_cast<double>(values.size())))];
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 1000;
  if (argc > 1) {
    const std::string_view text(argv[1]);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rounds);
    if (error != std::errc() || end != text.data() + text.size() || rounds < 1 || argc > 2) {
      std::fprintf(stderr, "usage: bench_placement [ROUNDS], ROUNDS a positive number\n");
      return 2;
    }
  }
  const Fleet fleet = make_fleet();
  const plan::Need& need = fleet.input.queued[0].needs[0];
  std::vector<double> ours;
  std::vector<double> baseline;
  std::vector<std::string> placed;
  std::vector<std::string> placed_one_by_one;
  for (int round = 0; round < rounds; ++round) {
    plan::SchedulerInput input = fleet.input;  // a copy, as the operator passes one
    plan::SchedulerOutput output;
    ours.push_back(timed([&] { output = plan::schedule(std::move(input)); }));
    if (!output.placements.contains("gang")) {
      std::fprintf(stderr, "the gang was not placed: %s\n",
                   output.waiting.at("gang").message.c_str());
      return 1;
    }
    placed = std::move(output.placements.at("gang"));
    if (round % kRoundsPerBaseline != 0) continue;
    baseline.push_back(timed([&] { placed_one_by_one = one_by_one(need, fleet.input.rooms); }));
    if (placed_one_by_one.size() != placed.size()) {
      std::fprintf(stderr, "one pod at a time: %zu of %zu pods placed\n", placed_one_by_one.size(),
                   placed.size());
      return 1;
    }
  }
  std::map<std::string, std::string> leaves;
  for (const auto& node : fleet.nodes) leaves[node.meta.name] = node.domains[1].get();
  const auto leaves_of = [&](const std::vector<std::string>& all) {
    std::set<std::string> used;
    for (const std::string& node : all) used.insert(leaves.at(node));
    return used.size();
  };
  const auto nodes_of = [](const std::vector<std::string>& all) {
    return std::set<std::string>(all.begin(), all.end()).size();
  };
  const double p99 = quantile(ours, 0.99);
  std::vector<double> queue;
  for (int round = 0; round < kQueueRounds; ++round) {
    plan::SchedulerInput input = with_queue(fleet);
    queue.push_back(timed([&] { (void)plan::schedule(std::move(input)); }));
  }
  std::vector<double> burst;
  for (int round = 0; round < kQueueRounds; ++round) {
    plan::SchedulerInput input = with_burst(fleet);
    plan::SchedulerOutput output;
    burst.push_back(timed([&] { output = plan::schedule(std::move(input)); }));
    if (output.placements.size() != kQueued) {
      std::fprintf(stderr, "%zu of %d gangs were placed\n", output.placements.size(), kQueued);
      return 1;
    }
  }
  const nlohmann::json line = {{"bench", "placement"},
                               {"ratio", quantile(baseline, 0.5) / quantile(ours, 0.5)},
                               {"nodes", kNodes},
                               {"pods", kPods},
                               {"rounds", rounds},
                               {"p50_ms", quantile(ours, 0.5)},
                               {"p99_ms", p99},
                               {"limit_p99_ms", kLimitMs},
                               {"queued_gangs", kQueued},
                               {"queue_p50_ms", quantile(queue, 0.5)},
                               {"limit_queue_p50_ms", kQueueLimitMs},
                               {"burst_p50_ms", quantile(burst, 0.5)},
                               {"one_by_one_p50_ms", quantile(baseline, 0.5)},
                               {"leaves_used", leaves_of(placed)},
                               {"leaves_used_one_by_one", leaves_of(placed_one_by_one)},
                               {"nodes_used", nodes_of(placed)},
                               {"nodes_used_one_by_one", nodes_of(placed_one_by_one)}};
  std::printf("%s\n", line.dump().c_str());
  return p99 <= kLimitMs && quantile(queue, 0.5) <= kQueueLimitMs ? 0 : 1;
}
