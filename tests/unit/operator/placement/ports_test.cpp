// SPDX-License-Identifier: Apache-2.0
// Room for pods in the network of their node: each takes one block of the node's ports.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "operator/plan/placement/placement.hpp"
#include "operator/plan/queue/scheduler.hpp"

namespace paceline::plan {
namespace {

observe::NodeView node_with_ports(const std::string& name, int cpu = 100) {
  observe::NodeView view;
  view.meta.name = name;
  view.ready = true;
  view.allocatable.cpu = cpu * 1000;
  view.allocatable.pods = 110'000;
  view.allocatable.port_blocks = 40'000;
  return view;
}

/// Pods with one CPU each, and ports.
Need with_ports(int pods) {
  Need need{"worker", {}, {}, pods};
  need.each.cpu = 1000;
  need.each.pods = 1000;
  need.each.port_blocks = 1000;
  return need;
}

Need without_ports(int pods) {
  Need need = with_ports(pods);
  need.each.port_blocks = 0;
  return need;
}

struct PortsTest : testing::Test {
  void add_node(const observe::NodeView& view, int free_blocks) {
    Room& room = input.rooms.emplace_back(Room{&view, view.allocatable});
    room.free.port_blocks = free_blocks * 1000;
  }
  void queue(const std::string& name, const Need& need, int priority = 0) {
    input.queued.push_back({name, name, "default", "default", priority, {}, {need}});
  }
  void run(const std::string& name, const std::string& on, const Need& need) {
    input.running.push_back({name, name, "default", 0, {}, false, {{on, need.each}}});
  }

  const observe::NodeView a = node_with_ports("a");
  const observe::NodeView b = node_with_ports("b");
  SchedulerInput input;
};

TEST_F(PortsTest, EachPodTakesABlockAndAJobThatWaitsForOneSaysSo) {
  add_node(a, 3);
  queue("1", with_ports(2));
  queue("2", with_ports(2));
  queue("3", without_ports(5));
  const auto output = schedule(input);
  EXPECT_TRUE(output.placements.contains("1"));
  EXPECT_EQ(output.waiting.at("2").reason, "WaitingForRoom");
  EXPECT_EQ(output.waiting.at("2").message,
            "worker: 1 of 2 pods fit on 1 nodes; 1 not enough host ports");
  EXPECT_TRUE(output.placements.contains("3")) << "pods with a network of their own need none";
}

TEST_F(PortsTest, AGangGoesToOtherNodesWhereANodeHasNoneLeft) {
  add_node(a, 1);
  add_node(b, 40);
  queue("pair", with_ports(2));
  EXPECT_EQ(schedule(input).placements.at("pair"), (std::vector<std::string>{"b", "b"}));
  input.queued.front().needs = {with_ports(41)};
  const auto nodes = schedule(input).placements.at("pair");
  EXPECT_EQ(std::ranges::count(nodes, "a"), 1);
  EXPECT_EQ(std::ranges::count(nodes, "b"), 40);
}

TEST_F(PortsTest, MoreThanANodeEverHasIsTooLarge) {
  add_node(a, 40);
  queue("crowd", with_ports(41));
  const std::string never = "does not fit even when all other jobs have ended: ";
  auto waiting = schedule(input).waiting.at("crowd");
  EXPECT_EQ(waiting.reason, "TooLarge");
  EXPECT_EQ(waiting.message,
            never + "worker: 40 of 41 pods fit on 1 nodes; 1 not enough host ports");
  input.queued.front().pods_per_node = 10;
  EXPECT_EQ(schedule(input).waiting.at("crowd").message,
            never + "worker: 10 of 41 pods fit on 1 nodes; podsPerNode is 10")
      << "ports are not what is missing";
  const auto full = node_with_ports("full", 0);
  input.rooms.clear();
  add_node(full, 0);
  input.queued.front().pods_per_node.reset();
  EXPECT_EQ(schedule(input).waiting.at("crowd").message,
            never + "worker: 0 of 41 pods fit on 1 nodes; 1 not enough cpu")
      << "more ports alone would not help";
}

TEST_F(PortsTest, OnlyAJobThatHasPortsMakesRoomForThem) {
  add_node(a, 0);
  add_node(b, 0);
  run("has-ports", "a", with_ports(1));
  run("has-none", "b", without_ports(1));
  queue("urgent", with_ports(1), 5);
  const auto output = schedule(input);
  EXPECT_EQ(output.waiting.at("urgent").reason, "Preempting");
  EXPECT_EQ(output.preempt, (std::map<std::string, std::string>{{"has-ports", "urgent"}}));
}

TEST_F(PortsTest, PortsThatTheHeadOfTheQueueWaitsForStayFree) {
  add_node(a, 1);
  run("holder", "a", with_ports(1));
  queue("1", with_ports(2));
  queue("2", with_ports(1));
  const auto output = schedule(input);
  EXPECT_TRUE(output.placements.empty());
  EXPECT_EQ(output.waiting.at("2").message,
            "worker: 0 of 1 pods fit on 1 nodes; 1 not enough host ports (behind 1)");
}

TEST_F(PortsTest, AReplacementLeavesItsOldNodeIfThatHasNoneLeft) {
  add_node(a, 0);
  add_node(b, 1);
  std::vector<Need> needs = {with_ports(1)};
  needs.front().prefer = "a";
  const auto put = [&]() -> std::string {
    Allowances allowances;
    const auto placement =
        place({needs, {}, {}, {"b"}}, input.rooms, Topology(input.rooms), allowances);
    return placement ? input.rooms[placement->rooms.front()].node->meta.name : placement.error();
  };
  EXPECT_EQ(put(), "b");
  EXPECT_EQ(put(), "worker: 0 of 1 pods fit on 2 nodes; 2 not enough host ports");
  input.rooms.front().free.port_blocks = 1000;
  EXPECT_EQ(put(), "a");
}

}  // namespace
}  // namespace paceline::plan
