// SPDX-License-Identifier: Apache-2.0
// Jobs that wait for a closer part of the network, but not for ever.
#include <gtest/gtest.h>

#include "common/base/timestamp.hpp"
#include "operator/plan/queue/scheduler.hpp"
#include "operator/status/phase.hpp"
#include "tests/unit/operator/controller_bench.hpp"
#include "tests/unit/operator/job_bench.hpp"

namespace paceline {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using plan::Level;
using Names = std::vector<std::string>;

observe::Resources cpus(int count) {
  observe::Resources resources;
  resources.cpu = count * 1000LL;
  resources.pods = 1000;
  return resources;
}

observe::NodeView node(const std::string& name, const std::string& leaf) {
  observe::NodeView view;
  view.meta.name = name;
  view.ready = true;
  view.allocatable = cpus(1);
  view.allocatable.pods = 110'000;
  view.domains[static_cast<std::size_t>(Level::kLeaf)] = observe::SharedText(leaf);
  return view;
}

/// Two nodes under leaf a and one under leaf b. The gang has two pods, each of a node's size.
struct Leaves {
  Leaves() {
    for (const auto& view : nodes) input.rooms.push_back({&view, view.allocatable});
    input.now = WallTime(1000s);
    plan::QueuedGang gang{"gang", "gang", "ns", "q", 1, {}, {need(2)}};
    gang.preferred = {Level::kLeaf, until, false};
    input.queued.push_back(std::move(gang));
  }
  static plan::Need need(int pods) {
    return {.role = "worker", .each = cpus(1), .constraints = {}, .count = pods};
  }
  /// A job of low priority runs there.
  void occupy(std::size_t room) {
    const std::string name = nodes[room].meta.name;
    input.rooms[room].free = {};
    input.running.push_back({"on-" + name, "on-" + name, "q", 0, {}, false, {{name, cpus(1)}}});
  }
  plan::QueuedGang& gang() { return input.queued.front(); }

  const WallTime until{1600s};
  const std::vector<observe::NodeView> nodes{node("a1", "a"), node("a2", "a"), node("b1", "b")};
  plan::SchedulerInput input;
};

TEST(Preferred, ADomainWithRoomIsTakenAtOnce) {
  Leaves leaves;
  const auto output = schedule(leaves.input);
  EXPECT_EQ(output.placements.at("gang"), (Names{"a1", "a2"}));
  EXPECT_TRUE(output.waiting.empty());
}

TEST(Preferred, AGangThatCouldRunElsewhereWaitsAndHoldsUpNoOther) {
  Leaves leaves;
  leaves.occupy(0);
  plan::QueuedGang next{"next", "next", "ns", "q", 0, {}, {Leaves::need(2)}};
  leaves.input.queued.push_back(next);
  auto output = schedule(leaves.input);
  const plan::Waiting& waiting = output.waiting.at("gang");
  EXPECT_EQ(waiting.reason, "WaitingForCloserNodes");
  EXPECT_EQ(waiting.message,
            "no leaf has room for all 2 pods of worker: the roomiest takes 1; waits for one leaf");
  EXPECT_EQ(waiting.until, leaves.until);
  EXPECT_TRUE(output.preempt.empty()) << "it does not preempt for what it only prefers";
  EXPECT_EQ(output.placements.at("next"), (Names{"a2", "b1"})) << "it keeps no room free";
  leaves.gang().preferred.reset();
  output = schedule(leaves.input);
  EXPECT_EQ(output.placements.at("gang"), (Names{"a2", "b1"}));
}

TEST(Preferred, AGangThatCouldRunNowhereWaitsAsAnyOther) {
  Leaves leaves;
  leaves.occupy(0);
  leaves.occupy(2);
  const auto output = schedule(leaves.input);
  ASSERT_TRUE(output.waiting.contains("gang"));
  EXPECT_EQ(output.waiting.at("gang").reason, "Preempting");
  EXPECT_FALSE(output.waiting.at("gang").until.has_value());
  EXPECT_EQ(output.preempt.size(), 1U);
}

TEST(Preferred, AGangThatLetOthersStartDoesNotPreemptThemBeforeItsLimit) {
  Leaves leaves;
  leaves.occupy(0);
  leaves.occupy(2);
  leaves.gang().preferred->waits = true;
  const auto output = schedule(leaves.input);
  EXPECT_EQ(output.waiting.at("gang").until, leaves.until);
  EXPECT_TRUE(output.preempt.empty());
}

TEST(Preferred, ManyThatWaitSearchTheNodesOnceForEachShape) {
  Leaves leaves;
  leaves.occupy(0);
  leaves.gang().preferred->waits = true;
  for (int i = 0; i < 9; ++i) {
    plan::QueuedGang more = leaves.gang();
    more.id = more.name = "gang-" + std::to_string(i);
    leaves.input.queued.push_back(std::move(more));
  }
  plan::PassNotes notes;
  const auto output = schedule(leaves.input, &notes);
  EXPECT_EQ(output.waiting.size(), 10U);
  EXPECT_EQ(output.waiting.at("gang-8"), output.waiting.at("gang"));
  EXPECT_EQ(notes.searches, 2U) << "what is free now, and what would be if no job ran";
}

TEST(Preferred, WhatNoDomainCouldEverHoldDoesNotWait) {
  Leaves large;
  large.gang().needs = {Leaves::need(3)};
  EXPECT_EQ(schedule(large.input).placements.at("gang").size(), 3U);
  Leaves unlabelled;
  unlabelled.occupy(0);
  unlabelled.gang().preferred->level = Level::kZone;
  EXPECT_EQ(schedule(unlabelled.input).placements.at("gang"), (Names{"a2", "b1"}));
}

TEST(Preferred, AnElasticGangWaitsForADomainOfAllItsPods) {
  Leaves leaves;
  leaves.occupy(0);
  leaves.gang().elastic = {0, 1};
  EXPECT_EQ(schedule(leaves.input).waiting.at("gang").reason, "WaitingForCloserNodes");
  leaves.occupy(2);
  EXPECT_EQ(schedule(leaves.input).waiting.at("gang").reason, "WaitingForCloserNodes")
      << "it could run with one pod";
  leaves.gang().preferred.reset();
  EXPECT_EQ(schedule(leaves.input).placements.at("gang"), (Names{"a2"}));
}

TEST(Preferred, TheJobWakesWhenItsLimitPasses) {
  plan::JobBench bench;
  bench.memory.waiting =
      plan::Waiting{"WaitingForCloserNodes", "full; waits for one leaf", bench.now + 10min};
  plan::Plan plan = bench.step();
  EXPECT_EQ(plan.requeue_after, 10min);
  EXPECT_FALSE(plan.look_again);
  EXPECT_EQ(bench.status().message,
            "full; waits for one leaf until 2026-01-01T00:10:00Z, then starts where there is room "
            "(spec.topology.preferredTimeout)");
  bench.advance(10min);
  plan = bench.step();
  EXPECT_TRUE(plan.look_again) << "no event tells the scheduler";
}

TEST(Preferred, TheLimitCountsFromNowOnIfTheClockWasSetBack) {
  plan::JobBench bench;
  bench.memory.waiting = plan::Waiting{"WaitingForCloserNodes", "full", bench.now + 10min};
  const auto counts_from = [&] {
    bench.step();
    return bench.status().find(status::kCouldRun)->since;
  };
  const WallTime first = counts_from();
  bench.advance(1min);
  EXPECT_EQ(counts_from(), first);
  bench.now -= 1h;
  EXPECT_EQ(counts_from(), first - 59min);
  bench.advance(1min);
  EXPECT_EQ(counts_from(), first - 59min);
}

/// A job of one pod runs on n0 under leaf l0. So two pods have room on n1 and n2, under two leaves.
class PreferredLeaf : public ::testing::Test {
 protected:
  PreferredLeaf() {
    bench.add_node("n0", 1, {{"paceline.dev/leaf", "l0"}});
    const json container = {{"name", "trainer"},
                            {"image", "i"},
                            {"command", {"train"}},
                            {"resources", {{"requests", {{"cpu", 1}}}}}};
    const json pod = {{"spec", {{"containers", json::array({container})}}}};
    bench.add_job("busy",
                  {{"roles", json::array({{{"name", "w"}, {"replicas", 1}, {"template", pod}}})}});
    bench.settle();
  }
  void add_two_nodes() {
    bench.add_node("n1", 1, {{"paceline.dev/leaf", "l0"}});
    bench.add_node("n2", 1, {{"paceline.dev/leaf", "l1"}});
    bench.settle();
  }
  void add_choosy_job() {
    bench.add_job("j", {{"topology", {{"preferred", "Leaf"}, {"preferredTimeout", "10m"}}}});
    bench.settle();
  }
  json status() const { return bench.job("j")["status"]; }
  /// It waits for a leaf, but no longer than that.
  bool waits_until(WallTime until) const {
    const json placed = bench.condition("j", "Placed");
    return placed.value("reason", "") == "WaitingForCloserNodes" &&
           placed.value("message", "").find(format_time(until)) != std::string::npos;
  }

  apply::ControllerBench bench;
};

TEST_F(PreferredLeaf, IsWaitedForUntilTheLimitAndNoLonger) {
  add_two_nodes();
  add_choosy_job();
  const WallTime until = bench.now() + 10min;
  EXPECT_TRUE(waits_until(until)) << status().dump(1);
  bench.advance(10min - 1s);
  EXPECT_TRUE(waits_until(until)) << status().dump(1);
  EXPECT_TRUE(bench.pods("j").empty());
  bench.advance(1s);
  EXPECT_EQ(status()["phase"], "Running") << status().dump(1);
  EXPECT_EQ(bench.pods("j").size(), 2U);
}

TEST_F(PreferredLeaf, IsTakenAsSoonAsItHasRoom) {
  add_two_nodes();
  add_choosy_job();
  bench.advance(5min);
  bench.finish("busy");
  bench.settle();
  EXPECT_EQ(status()["placement"]["where"], "2 nodes in leaf l0") << status().dump(1);
}

TEST_F(PreferredLeaf, TheTimeCountsFromWhenTheJobCouldRun) {
  add_choosy_job();
  EXPECT_EQ(status()["phase"], "Queued");
  bench.advance(30min);
  add_two_nodes();
  EXPECT_TRUE(waits_until(bench.now() + 10min)) << status().dump(1);
}

TEST_F(PreferredLeaf, ANewTryCountsAnew) {
  add_two_nodes();
  add_choosy_job();
  bench.advance(5min);
  for (const bool suspend : {true, false}) {
    bench.patch_job("j", {{"spec", {{"suspend", suspend}}}});
    bench.settle();
  }
  EXPECT_TRUE(waits_until(bench.now() + 10min)) << status().dump(1);
}

TEST_F(PreferredLeaf, TheTimeGoesOnWhenTheOperatorRestarts) {
  add_two_nodes();
  add_choosy_job();
  const WallTime until = bench.now() + 10min;
  for (int i = 0; i < 2; ++i) {
    bench.advance(4min);
    bench.restart_operator();
    bench.settle();
    EXPECT_TRUE(waits_until(until)) << status().dump(1);
  }
  EXPECT_EQ(bench.condition("j", "CouldRun")["status"], "True");
  bench.advance(2min);
  EXPECT_EQ(status()["phase"], "Running") << status().dump(1);
  EXPECT_EQ(bench.condition("j", "CouldRun")["status"], "False");
}

TEST_F(PreferredLeaf, TheLimitOfAWaitingJobMayChange) {
  add_two_nodes();
  add_choosy_job();
  const WallTime began = bench.now();
  bench.advance(5min);
  const auto limit = [&](const char* time) {
    bench.patch_job("j", {{"spec", {{"topology", {{"preferredTimeout", time}}}}}});
    bench.settle();
    bench.advance(15s);  // another message alone is not written at once
  };
  limit("1h");
  EXPECT_TRUE(waits_until(began + 1h)) << status().dump(1);
  limit("5m");
  EXPECT_EQ(status()["phase"], "Running") << "it has waited for so long: " << status().dump(1);
  limit("1h");
  EXPECT_EQ(status()["phase"], "Running");
  EXPECT_EQ(status()["attempt"], 0) << "a running job is not touched";
}

}  // namespace
}  // namespace paceline
