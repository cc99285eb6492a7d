// SPDX-License-Identifier: Apache-2.0
// Where gangs go on clusters whose nodes share leaves, spines and zones.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <random>

#include "operator/plan/queue/scheduler.hpp"

namespace paceline::plan {
namespace {

using Names = std::vector<std::string>;

observe::Resources cpus(int count) {
  observe::Resources resources;
  resources.cpu = count * 1000LL;
  resources.pods = 1000;
  return resources;
}

/// A node with as many CPUs as `cpu`, and its domains from the closest to the widest.
observe::NodeView node(const std::string& name, int cpu, const std::string& leaf,
                       const std::string& spine = "", const std::string& zone = "",
                       const std::string& nvlink = "") {
  observe::NodeView view;
  view.meta.name = name;
  view.ready = true;
  view.allocatable = cpus(cpu);
  view.allocatable.pods = 110'000;
  view.domains = {observe::SharedText(nvlink), observe::SharedText(leaf),
                  observe::SharedText(spine), observe::SharedText(zone)};
  return view;
}

Need need(int pods, int cpu = 1, const std::string& role = "worker") {
  return {.role = role, .each = cpus(cpu), .constraints = {}, .count = pods};
}

struct Cluster {
  explicit Cluster(std::vector<observe::NodeView> views) : nodes(std::move(views)) {
    for (const auto& view : nodes) rooms.push_back({&view, view.allocatable});
  }
  std::expected<Placement, std::string> place(const Ask& ask) {
    Allowances allowances;
    return plan::place(ask, rooms, Topology(rooms), allowances);
  }
  Names names(const Placement& placement) const {
    Names names;
    for (const std::size_t room : placement.rooms) names.push_back(nodes[room].meta.name);
    return names;
  }
  /// Where the pods go; one name that starts with '!' tells why they do not.
  Names put(const std::vector<Need>& needs, std::optional<Level> required = std::nullopt,
            const std::multiset<std::string>& occupied = {},
            std::optional<int> pods_per_node = std::nullopt) {
    const auto placement = place({needs, pods_per_node, required, occupied});
    return placement ? names(*placement) : Names{"!" + placement.error()};
  }
  std::vector<observe::NodeView> nodes;
  std::vector<Room> rooms;
};

TEST(Topology, AGangGoesToOneLeafWhereOneHasTheRoom) {
  // Without topology, the roomiest nodes would be taken: b1 and c1, under two spines.
  Cluster cluster({node("a1", 2, "a", "s"), node("a2", 2, "a", "s"), node("b1", 3, "b", "s"),
                   node("c1", 3, "c", "t")});
  const auto placement = cluster.place({std::vector<Need>{need(4)}});
  ASSERT_TRUE(placement.has_value());
  EXPECT_EQ(cluster.names(*placement), (Names{"a1", "a1", "a2", "a2"}));
  EXPECT_EQ(placement->where, "2 nodes in leaf a, spine s");
}

/// It takes milliseconds without sanitizers: bench/placement.
TEST(Topology, AGangOnSixThousandNodesIsPlacedWithinSeconds) {
  constexpr int kPods = 1024;
  std::vector<observe::NodeView> nodes;
  for (int i = 0; i < 6000; ++i)
    nodes.push_back(node("n" + std::to_string(i), 8, "leaf-" + std::to_string(i / 16),
                         "spine-" + std::to_string(i / 256), "zone-" + std::to_string(i / 2560)));
  Cluster cluster(std::move(nodes));
  const auto began = std::chrono::steady_clock::now();
  const Names names = cluster.put({need(kPods, 8)});
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), std::size_t{kPods})
      << names.front();
}

TEST(Topology, OfLeavesWithRoomTheTightestIsTaken) {
  Cluster cluster({node("a1", 4, "a"), node("a2", 4, "a"), node("b1", 4, "b"), node("c1", 4, "c"),
                   node("c2", 4, "c"), node("c3", 4, "c")});
  EXPECT_EQ(cluster.put({need(4, 4)}), (Names{"c1", "c2", "c3", "b1"}));
  Cluster fresh(cluster.nodes);
  EXPECT_EQ(fresh.put({need(2, 4)}), (Names{"a1", "a2"}));
  EXPECT_EQ(fresh.put({need(1, 4)}), (Names{"b1"}));
}

TEST(Topology, PodsPerNodeHoldsForAllRolesTogether) {
  const std::vector<observe::NodeView> nodes{node("a1", 8, "a"), node("a2", 8, "a")};
  const std::vector<Need> roles{need(3), need(1, 1, "server")};
  Names names = Cluster(nodes).put(roles, std::nullopt, {}, 2);
  std::ranges::sort(names);
  EXPECT_EQ(names, (Names{"a1", "a1", "a2", "a2"}));
  EXPECT_EQ(Cluster(nodes).put(roles, std::nullopt, {"a1"}, 2).front(),
            "!server: 0 of 1 pods fit on 2 nodes; podsPerNode is 2");
  EXPECT_EQ(Cluster(nodes).put({need(5)}, std::nullopt, {}, 2).front(),
            "!worker: 4 of 5 pods fit on 2 nodes; podsPerNode is 2");
  EXPECT_EQ(Cluster(nodes).put({need(1)}, std::nullopt, {"a1", "a2"}, 1).front(),
            "!worker: 0 of 1 pods fit on 2 nodes; 2 full of pods of this job; podsPerNode is 1");
  EXPECT_EQ(Cluster(nodes).put({need(5)}).size(), 5U);
}

TEST(Topology, AGangThatSpansLeavesStaysUnderOneSpineAndSaysWhy) {
  Cluster cluster({node("a1", 2, "a", "s", "z"), node("b1", 3, "b", "t", "z"),
                   node("c1", 2, "c", "s", "z"), node("d1", 1, "d", "t", "z")});
  const auto placement = cluster.place({std::vector<Need>{need(4)}});
  ASSERT_TRUE(placement.has_value());
  EXPECT_EQ(placement->where,
            "2 nodes in 2 leaves, spine s, zone z; no leaf has room for all 4 pods of worker: the "
            "roomiest takes 3");
  EXPECT_EQ(cluster.names(*placement), (Names{"a1", "a1", "c1", "c1"}));
}

TEST(Topology, NeighboursInRankShareTheClosestDomain) {
  Cluster cluster({node("n1", 1, "a", "s"), node("n2", 1, "b", "t"), node("n3", 1, "a", "s"),
                   node("n4", 1, "c", "s"), node("n5", 1, "b", "t"), node("n6", 1, "c", "s"),
                   node("n7", 1, "a", "s")});
  EXPECT_EQ(cluster.put({need(7)}), (Names{"n1", "n3", "n7", "n4", "n6", "n2", "n5"}));
}

TEST(Topology, ARequiredLevelIsNotCrossed) {
  const std::vector<observe::NodeView> nodes{node("a1", 2, "a", "s"), node("b1", 3, "b", "s"),
                                             node("c1", 4, "", "s")};
  EXPECT_EQ(Cluster(nodes).put({need(3)}, Level::kLeaf), (Names{"b1", "b1", "b1"}));
  EXPECT_EQ(Cluster(nodes).put({need(4)}, Level::kLeaf),
            (Names{"!no leaf has room for all 4 pods of worker: the roomiest takes 3"}));
  EXPECT_EQ(Cluster(nodes).put({need(9)}, Level::kSpine).size(), 9U);
  EXPECT_EQ(Cluster(nodes).put({need(1)}, Level::kZone),
            (Names{"!no node has a label that names its zone"}));
  // The NVLink of most machines ends inside them.
  EXPECT_EQ(Cluster(nodes).put({need(4)}, Level::kNvlink), Names(4, "c1"));
  EXPECT_EQ(Cluster(nodes).put({need(5)}, Level::kNvlink),
            (Names{"!no NVLink domain has room for all 5 pods of worker: the roomiest takes 4"}));
}

TEST(Topology, AnNvlinkDomainIsCloserThanALeafAndTheAgentKnowsItBest) {
  Cluster cluster({node("a1", 1, "a", "", "", "u/1"), node("a2", 1, "a", "", "", "u/2"),
                   node("a3", 1, "a", "", "", "u/1"), node("a4", 1, "a")});
  observe::FabricView fabric;
  fabric.nvlink_domain = "u/2";
  cluster.rooms[3].fabric = &fabric;
  EXPECT_EQ(cluster.put({need(1)}), (Names{"a1"}));
  EXPECT_EQ(cluster.put({need(2)}), (Names{"a2", "a4"}));
}

TEST(Topology, LeavesOfTwoSpinesMayHaveOneName) {
  Cluster cluster({node("n1", 1, "1", "s"), node("n2", 1, "1", "t"), node("n3", 1, "2", "t")});
  EXPECT_EQ(cluster.put({need(2)}), (Names{"n2", "n3"}));
}

TEST(Topology, AllRolesShareADomainAndRolesWithoutAcceleratorsGoNearIt) {
  const std::vector<observe::NodeView> nodes{node("a1", 3, "a", "s"), node("b1", 2, "b", "s"),
                                             node("b2", 2, "b", "s"), node("c1", 1, "c", "s"),
                                             node("d1", 3, "d", "t")};
  // Worker by worker, leaf a would be the tightest, but then the chief would be under another leaf.
  EXPECT_EQ(Cluster(nodes).put({need(1, 1, "chief"), need(3)}), (Names{"b1", "b2", "b2", "b1"}));
  Need chief = need(1, 1, "chief");
  Need worker = need(3);
  worker.accelerators = true;
  EXPECT_EQ(Cluster(nodes).put({chief, worker}, Level::kLeaf), (Names{"c1", "a1", "a1", "a1"}))
      << "the level is required of the workers";
}

TEST(Topology, AReplacementGoesNearTheOthers) {
  const std::vector<observe::NodeView> nodes{node("a1", 1, "a", "s"), node("b1", 1, "b", "s"),
                                             node("c1", 1, "c", "t"), node("c2", 1, "c", "t"),
                                             node("c3", 0, "c", "t"), node("d1", 1, "d", "t")};
  EXPECT_EQ(Cluster(nodes).put({need(1)}, std::nullopt, {"c3"}), (Names{"c1"}));
  Cluster cluster(nodes);
  EXPECT_EQ(cluster.put({need(1)}, Level::kLeaf, {"c1", "c3"}, 1), (Names{"c2"}));
  EXPECT_EQ(cluster.put({need(1)}, Level::kLeaf, {"c1", "c2", "c3"}, 1).front().front(), '!');
  EXPECT_EQ(cluster.put({need(1)}, std::nullopt, {"c1", "c2", "c3"}, 1), (Names{"d1"}));
}

TEST(Topology, WaitsForARequiredLevelThatOtherGangsHoldAndPreemptsForIt) {
  std::vector<observe::NodeView> nodes{node("a1", 2, "a"), node("a2", 2, "a"), node("b1", 2, "b")};
  SchedulerInput input;
  for (const auto& view : nodes) input.rooms.push_back({&view, view.allocatable});
  input.rooms[0].free = {};
  input.running.push_back({"low", "low", "q", 0, {}, false, {{"a1", cpus(2)}}});
  QueuedGang gang{"gang", "gang", "ns", "q", 1, {}, {need(2, 2)}};
  input.queued = {gang};
  EXPECT_EQ(schedule(input).placements.at("gang"), (Names{"a2", "b1"})) << "nothing is required";
  gang.required = Level::kLeaf;
  input.queued = {gang};
  auto output = schedule(input);
  EXPECT_EQ(output.waiting.at("gang").reason, "Preempting");
  EXPECT_TRUE(output.preempt.contains("low"));
  input.running[0].priority = 1;
  output = schedule(input);
  EXPECT_EQ(output.waiting.at("gang").reason, "WaitingForRoom");
  EXPECT_EQ(output.waiting.at("gang").message,
            "no leaf has room for all 2 pods of worker: the roomiest takes 1");
  input.queued[0].needs[0].count = 3;
  EXPECT_EQ(schedule(input).waiting.at("gang").reason, "TooLarge");
}

TEST(Topology, LabelsOfProvidersNameTheLevels) {
  struct Case {
    const char* labels;
    Names domains;
  };
  const Case cases[] = {
      {R"({})", {"", "", "", ""}},
      {R"({"nvidia.com/gpu.clique":"5a3c.32766","topology.kubernetes.io/zone":"z"})",
       {"5a3c/32766", "", "", "z"}},
      {R"({"network.topology.nvidia.com/leaf":"l","network.topology.nvidia.com/spine":"s"})",
       {"", "l", "s", ""}},
      {R"({"topology.k8s.aws/network-node-layer-3":"l","topology.k8s.aws/network-node-layer-2":"s"})",
       {"", "l", "s", ""}},
      {R"({"cloud.google.com/gce-topology-subblock":"l","cloud.google.com/gce-topology-block":"s"})",
       {"", "l", "s", ""}},
      {R"({"paceline.dev/leaf":"mine","network.topology.nvidia.com/leaf":"theirs"})",
       {"", "mine", "", ""}},
  };
  for (const Case& one : cases) {
    const auto view =
        observe::project_node(std::string(R"({"metadata":{"labels":)") + one.labels + "}}");
    ASSERT_TRUE(view.has_value());
    Names domains;
    for (const auto& name : view->domains) domains.push_back(name.get());
    EXPECT_EQ(domains, one.domains) << one.labels;
  }
}

/// What a placement costs if each level costs four times what the next closer one does.
int cost_of(const Topology& topology, const std::set<std::size_t>& rooms) {
  int weight = 1;
  int cost = static_cast<int>(rooms.size());
  for (const Level level : kClosestFirst) {
    weight *= 4;
    std::set<std::size_t> used;
    for (const std::size_t room : rooms)
      used.insert(topology.domain(level, topology.position(room)));
    cost += weight * static_cast<int>(used.size());
  }
  return cost;
}

/// Tries every set of nodes that holds the gang.
int cheapest(const Topology& topology, const std::vector<Room>& rooms, int pods) {
  int least = std::numeric_limits<int>::max();
  for (unsigned set = 1; set < 1U << rooms.size(); ++set) {
    std::set<std::size_t> used;
    std::int64_t room = 0;
    for (std::size_t i = 0; i < rooms.size(); ++i) {
      if ((set >> i & 1U) == 0) continue;
      used.insert(i);
      room += rooms[i].free.cpu / 1000;
    }
    if (room >= pods) least = std::min(least, cost_of(topology, used));
  }
  return least;
}

TEST(Topology, RandomGangsAreWithinFivePercentOfTheBestPlacement) {
  constexpr int kCases = 2000;
  std::mt19937 random(7);
  const auto pick = [&](int size) {
    return std::uniform_int_distribution<int>(0, size - 1)(random);
  };
  std::int64_t ours = 0;
  std::int64_t best = 0;
  int worse = 0;
  for (int i = 0; i < kCases; ++i) {
    std::vector<observe::NodeView> nodes;
    int room = 0;
    for (int n = 2 + pick(8); n > 0; --n) {
      const int cpu = pick(5);
      room += cpu;
      nodes.push_back(node("n" + std::to_string(n), cpu, std::to_string(pick(3)),
                           std::to_string(pick(2)), std::to_string(pick(2))));
    }
    if (room == 0) continue;
    Cluster cluster(nodes);
    const Topology topology(cluster.rooms);
    const int pods = 1 + pick(room);
    const int least = cheapest(topology, cluster.rooms, pods);
    const auto placement = cluster.place({std::vector<Need>{need(pods)}});
    ASSERT_TRUE(placement.has_value()) << placement.error();
    ASSERT_EQ(placement->rooms.size(), static_cast<std::size_t>(pods));
    const int cost = cost_of(topology, {placement->rooms.begin(), placement->rooms.end()});
    ASSERT_GE(cost, least) << "the search is not exhaustive";
    ours += cost;
    best += least;
    worse += cost > least ? 1 : 0;
  }
  RecordProperty("worse", worse);
  EXPECT_LE(static_cast<double>(ours), 1.05 * static_cast<double>(best)) << worse << " are worse";
}

}  // namespace
}  // namespace paceline::plan
