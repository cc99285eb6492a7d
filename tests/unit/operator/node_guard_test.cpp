// SPDX-License-Identifier: Apache-2.0
// Which pods are deleted by force when nodes fall silent.
#include "operator/plan/job/node_guard.hpp"

#include <gtest/gtest.h>

#include "tests/unit/operator/job_bench.hpp"

namespace paceline::plan {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr WallTime kStart{};
using NodePtr = std::shared_ptr<const observe::NodeView>;

NodePtr node_view(const std::string& name, bool ready, WallTime since = kStart,
                  const std::string& zone = "") {
  auto view = std::make_shared<observe::NodeView>();
  view->meta.name = name;
  view->ready = ready;
  view->ready_since = since;
  if (!zone.empty()) view->labels.emplace_back("topology.kubernetes.io/zone", zone);
  return view;
}

std::vector<NodePtr> zone_with(const std::string& zone, int silent, int ready) {
  std::vector<NodePtr> nodes;
  for (int i = 0; i < silent + ready; ++i)
    nodes.push_back(node_view(zone + std::to_string(i), i >= silent, kStart, zone));
  return nodes;
}

void launcher_says(JobBench& bench, const char* phase) {
  bench.memory.summary.emplace();
  bench.memory.summary->phase = phase;
  bench.memory.summary_at = bench.now;
}

TEST(NodeGuard, OneSilentNodeIsLostInTime) {
  const NodeGuard guard(zone_with("a", 1, 9), minutes(5));
  EXPECT_EQ(guard.lost_at("a0"), kStart + minutes(5));
  EXPECT_EQ(guard.lost_at("a5"), std::nullopt) << "it is ready";
}

TEST(NodeGuard, SilentNodesAreLostOneAfterTheOther) {
  const NodeGuard guard(zone_with("a", 4, 6), minutes(5));
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(guard.lost_at("a" + std::to_string(i)), kStart + minutes(5) + i * seconds(10));
}

TEST(NodeGuard, AnOldLossDelaysNoLaterOne) {
  std::vector<NodePtr> nodes = zone_with("a", 3, 7);
  nodes.push_back(node_view("late", false, kStart + hours(1), "a"));
  EXPECT_EQ(NodeGuard(nodes, minutes(5)).lost_at("late"), kStart + hours(1) + minutes(5));
}

TEST(NodeGuard, NoneIsLostWhileMostOfAZoneIsSilent) {
  EXPECT_TRUE(NodeGuard(zone_with("a", 5, 5), minutes(5)).lost_at("a0").has_value());
  EXPECT_FALSE(NodeGuard(zone_with("a", 6, 4), minutes(5)).lost_at("a0").has_value());
  EXPECT_TRUE(NodeGuard(zone_with("a", 2, 1), minutes(5)).lost_at("a0").has_value()) << "few nodes";
}

TEST(NodeGuard, AWholeZoneIsLostOnlyWhileAnotherAnswers) {
  std::vector<NodePtr> nodes = zone_with("a", 4, 0);
  EXPECT_FALSE(NodeGuard(nodes, minutes(5)).lost_at("a0").has_value());
  for (const NodePtr& other : zone_with("b", 0, 1)) nodes.push_back(other);
  EXPECT_TRUE(NodeGuard(nodes, minutes(5)).lost_at("a0").has_value());
}

TEST(NodeLoss, PodsOnNodesThatFellSilentTogetherStay) {
  JobBench bench;
  bench.run();
  for (const char* name : {"n0", "n1", "n2"}) bench.nodes[name] = node_view(name, false, bench.now);
  bench.nodes["n3"] = node_view("n3", true);
  bench.advance(hours(1));
  bench.settle();
  EXPECT_EQ(bench.pods.size(), 2U);
  EXPECT_EQ(bench.status().phase, "Running") << api::write_status(bench.status()).dump(1);
  // The other nodes answer again: n0 alone is lost.
  for (const char* name : {"n1", "n2"}) bench.nodes[name] = node_view(name, true);
  bench.step();
  EXPECT_FALSE(bench.pods.contains("j-w-0-0"));
  EXPECT_TRUE(bench.pods.contains("j-w-1-0"));
}

TEST(NodeLoss, APodStaysWhileItsLauncherSaysThatTheGangRuns) {
  JobBench bench;
  bench.run();
  bench.nodes["n1"] = node_view("n1", false, bench.now);
  bench.nodes["n2"] = node_view("n2", true);
  bench.advance(minutes(6));
  launcher_says(bench, "Running");
  bench.settle();
  EXPECT_EQ(bench.pods.size(), 2U);
  launcher_says(bench, "Restarting");
  bench.step();
  EXPECT_FALSE(bench.pods.contains("j-w-1-0"));
}

TEST(NodeLoss, AnOldWordOfTheLauncherDoesNotCount) {
  JobBench bench;
  bench.run();
  launcher_says(bench, "Running");
  bench.nodes["n1"] = node_view("n1", false, bench.now);
  bench.nodes["n2"] = node_view("n2", true);
  bench.advance(minutes(4));
  bench.settle();
  EXPECT_EQ(bench.pods.size(), 2U) << "the default is five minutes";
  bench.advance(minutes(2));
  bench.step();
  EXPECT_FALSE(bench.pods.contains("j-w-1-0"));
}

}  // namespace
}  // namespace paceline::plan
