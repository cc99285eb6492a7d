// SPDX-License-Identifier: Apache-2.0
// How large elastic gangs are when they start, and when running ones grow.
#include "operator/plan/queue/sizes.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "operator/plan/queue/scheduler.hpp"

namespace paceline::plan {
namespace {

using Names = std::vector<std::string>;

Need pods_of(int count, int cpu) {
  Need need{"worker", {}, {}, count};
  need.each.cpu = cpu * 1000;
  need.each.pods = 1000;
  return need;
}

/// Nodes a, b, … with four CPUs each.
struct Shared {
  explicit Shared(int count) {
    nodes.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      observe::NodeView& node = nodes.emplace_back();
      node.meta.name = std::string(1, static_cast<char>('a' + i));
      node.ready = true;
      node.allocatable.cpu = 4000;
      node.allocatable.memory = 1LL << 50;
      node.allocatable.pods = 110000;
      input.rooms.push_back({&node, node.allocatable});
    }
    input.now = WallTime(std::chrono::seconds(1000));
  }
  QueuedGang& queue(const std::string& name, int pods, std::optional<int> fewest, int age = 0,
                    int priority = 0) {
    QueuedGang gang{.id = name,
                    .name = name,
                    .ns = "ns",
                    .queue = "ns",
                    .priority = priority,
                    .created = WallTime(std::chrono::seconds(1000 - age)),
                    .needs = {pods_of(pods, 4)}};
    if (fewest) gang.elastic = Elasticity{0, *fewest};
    return input.queued.emplace_back(std::move(gang));
  }
  void take(const std::string& node, int priority = 0) {
    for (Room& room : input.rooms) {
      if (room.node->meta.name == node) room.free.subtract(pods_of(1, 4).each);
    }
    input.running.push_back(
        {"on-" + node, "on-" + node, "ns", priority, {}, false, {{node, pods_of(1, 4).each}}});
  }
  void grow(const std::string& name, int pods, Names nodes) {
    GrowingGang gang{.id = name, .ns = "ns", .need = pods_of(pods, 4), .nodes = std::move(nodes)};
    input.growing.push_back(std::move(gang));
  }
  std::vector<observe::NodeView> nodes;
  SchedulerInput input;
};

TEST(Sizes, TheLargestThatFits) {
  for (int limit = 0; limit <= 9; ++limit) {
    int asked = 0;
    const auto size = largest(2, 8, [&](int n) {
      ++asked;
      return n <= limit;
    });
    EXPECT_EQ(size, limit < 2 ? std::nullopt : std::optional(std::min(limit, 8)));
    EXPECT_LE(asked, 5);
  }
  EXPECT_EQ(largest(3, 2, [](int) { return true; }), std::nullopt);
}

TEST(Sizes, ALongQueueOfElasticGangsSearchesTheNodesOnceForEachShape) {
  constexpr std::size_t kGangs = 100;
  Shared nodes(2);
  nodes.take("a");
  nodes.take("b");
  for (std::size_t i = 0; i < kGangs; ++i) nodes.queue("q" + std::to_string(i), 4, 1);
  PassNotes notes;
  const auto output = schedule(nodes.input, &notes);
  EXPECT_EQ(output.waiting.size(), kGangs);
  EXPECT_LE(notes.searches, 6U);
}

TEST(Sizes, AGangStartsAsLargeAsThereIsRoom) {
  struct Case {
    int nodes;
    int wanted;
    int fewest;
    std::size_t pods;  // 0: it waits
  };
  for (const Case& test :
       {Case{4, 4, 1, 4}, {3, 4, 1, 3}, {1, 4, 1, 1}, {3, 4, 4, 0}, {2, 4, 3, 0}, {8, 4, 1, 4}}) {
    Shared shared(test.nodes);
    shared.queue("gang", test.wanted, test.fewest);
    const SchedulerOutput output = schedule(shared.input);
    const auto placed = output.placements.find("gang");
    EXPECT_EQ(placed == output.placements.end() ? 0 : placed->second.size(), test.pods);
    EXPECT_EQ(output.smaller.contains("gang"),
              test.pods > 0 && test.pods < static_cast<std::size_t>(test.wanted));
    EXPECT_EQ(output.waiting.contains("gang"), test.pods == 0);
  }
}

TEST(Sizes, WhatIsMissingIsNamed) {
  Shared shared(2);
  shared.queue("gang", 4, 1);
  const SchedulerOutput output = schedule(shared.input);
  EXPECT_EQ(output.smaller.at("gang"), "worker: 2 of 4 pods fit on 2 nodes");
}

TEST(Sizes, AQuotaMakesAGangSmaller) {
  Shared shared(4);
  observe::QuotaView quota;
  quota.meta.name = "team";
  quota.hard = {{"pods", 2000}};
  quota.used = {{"pods", 0}};
  shared.input.quotas["ns"] = {quota};
  shared.queue("gang", 4, 1);
  const SchedulerOutput output = schedule(shared.input);
  ASSERT_TRUE(output.placements.contains("gang"));
  EXPECT_EQ(output.placements.at("gang").size(), 2U);
  EXPECT_NE(output.smaller.at("gang").find("quota team"), std::string::npos);
}

TEST(Sizes, AGangThatWaitsReservesForItsSmallestSize) {
  // Of three nodes two are taken. The elastic gang needs two, so one node is held back for it, and
  // the one behind it could use none; if it reserved four nodes, it could never run here.
  Shared shared(3);
  shared.take("a");
  shared.take("b");
  shared.queue("elastic", 4, 2, 10);
  shared.queue("behind", 1, std::nullopt, 5);
  const SchedulerOutput output = schedule(shared.input);
  EXPECT_EQ(output.waiting.at("elastic").reason, "WaitingForRoom");
  EXPECT_EQ(output.waiting.at("elastic").message.substr(0, 24), "worker: 1 of 2 pods fit ");
  EXPECT_EQ(output.placements.count("behind") + output.waiting.count("behind"), 1U);
}

TEST(Sizes, AGangPreemptsForItsSmallestSizeOnly) {
  Shared shared(3);
  for (const char* node : {"a", "b", "c"}) shared.take(node);
  shared.queue("high", 3, 1, 0, 10);
  const SchedulerOutput output = schedule(shared.input);
  EXPECT_EQ(output.preempt.size(), 1U);
}

TEST(Sizes, ASmallerStartPreemptsNobody) {
  Shared shared(3);
  shared.take("a");
  shared.queue("high", 3, 1, 0, 10);
  const SchedulerOutput output = schedule(shared.input);
  EXPECT_TRUE(output.preempt.empty());
  EXPECT_EQ(output.placements.at("high").size(), 2U);
}

TEST(Sizes, ARunningGangGrowsIntoWhatIsLeft) {
  Shared shared(4);
  shared.take("a");
  shared.grow("gang", 2, {"a"});
  SchedulerOutput output = schedule(shared.input);
  EXPECT_EQ(output.grown.at("gang").nodes, (Names{"b", "c"}));
  // As many as there is room for.
  Shared full(2);
  full.take("a");
  full.grow("gang", 3, {"a"});
  output = schedule(full.input);
  EXPECT_EQ(output.grown.at("gang").nodes, Names{"b"});
  // None: it says why.
  Shared none(1);
  none.take("a");
  none.grow("gang", 1, {"a"});
  output = schedule(none.input);
  EXPECT_TRUE(output.grown.empty());
  EXPECT_EQ(output.full.at("gang").message, "worker: 0 of 1 pods fit on 1 nodes; 1 not enough cpu");
  EXPECT_TRUE(output.grow.empty()) << "nobody adds nodes here";
}

TEST(Sizes, AGrowingGangAsksForNodesOnlyIfNodesWouldHelp) {
  Shared none(1);
  none.take("a");
  none.grow("gang", 2, {"a"});
  none.input.growing[0].may_grow = true;
  SchedulerOutput output = schedule(none.input);
  EXPECT_EQ(output.grow.at("gang"), "needs 2 pods with 4 cpu each (worker)");
  observe::QuotaView quota;
  quota.hard = quota.used = {{"pods", 1000}};
  none.input.quotas["ns"] = {quota};
  output = schedule(none.input);
  EXPECT_EQ(output.full.at("gang").reason, "QuotaExceeded");
  EXPECT_TRUE(output.grow.empty());
}

TEST(Sizes, ARoomThatAGrowingGangHoldsIsForWaitingGangsAndForIt) {
  Shared shared(2);
  shared.take("a");
  shared.grow("gang", 2, {"a"});
  shared.input.growing[0].may_grow = true;
  shared.input.growing[0].held = {{"placeholder", 0, "b", pods_of(1, 4).each}};
  SchedulerOutput output = schedule(shared.input);
  EXPECT_EQ(output.grown.at("gang").nodes, Names{"b"});
  shared.queue("waits", 1, std::nullopt);
  output = schedule(shared.input);
  EXPECT_EQ(output.placements.at("waits"), Names{"b"});
  EXPECT_EQ(output.displaced.at("gang"), std::set<std::string>{"placeholder"});
}

TEST(Sizes, WaitingGangsComeBeforeGrowingOnes) {
  Shared shared(2);
  shared.take("a");
  shared.queue("waits", 1, std::nullopt);
  shared.grow("gang", 1, {"a"});
  SchedulerOutput output = schedule(shared.input);
  EXPECT_TRUE(output.placements.contains("waits"));
  EXPECT_TRUE(output.grown.empty());
  // What is reserved for a gang that waits is no room to grow into.
  Shared head(2);
  head.take("a");
  head.queue("waits", 2, std::nullopt);
  head.grow("gang", 1, {"a"});
  output = schedule(head.input);
  EXPECT_TRUE(output.waiting.contains("waits"));
  EXPECT_TRUE(output.grown.empty());
}

TEST(Sizes, TwoGrowingGangsDoNotShareARoom) {
  Shared shared(3);
  shared.take("a");
  shared.take("b");
  shared.grow("one", 1, {"a"});
  shared.grow("two", 1, {"b"});
  const SchedulerOutput output = schedule(shared.input);
  EXPECT_EQ(output.grown.size(), 1U);
  EXPECT_EQ(output.full.size(), 1U);
}

TEST(Sizes, PodsPerNodeCountsThoseThatTheGangHas) {
  for (const int most : {1, 2}) {
    Shared shared(2);
    shared.input.growing.push_back(
        {.id = "gang", .ns = "ns", .need = pods_of(4, 1), .pods_per_node = most, .nodes = {"a"}});
    Names nodes = schedule(shared.input).grown.at("gang").nodes;
    std::ranges::sort(nodes);
    EXPECT_EQ(nodes, most == 1 ? Names({"b"}) : Names({"a", "b", "b"}));
  }
}

}  // namespace
}  // namespace paceline::plan
