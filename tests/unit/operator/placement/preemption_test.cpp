// SPDX-License-Identifier: Apache-2.0
// Whom a gang preempts, on random fleets, against the plain way: candidates stop one by one until
// it fits, and then each is tried once more.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "operator/plan/placement/headroom.hpp"
#include "operator/plan/queue/scheduler.hpp"

namespace paceline::plan {
namespace {

constexpr int kNodes = 6;
constexpr int kNodesOfLeaf = 3;
constexpr int kCpus = 8;
constexpr int kFleets = 2000;

/// A fleet full of running gangs of other priorities, and one gang that waits for room.
class CrowdedFleet {
 public:
  explicit CrowdedFleet(unsigned seed) : random_(seed) {
    for (int i = 0; i < kNodes; ++i) {
      observe::NodeView& view = nodes_.emplace_back();
      view.meta.name = "n" + std::to_string(i);
      view.ready = true;
      view.unschedulable = any(0, 9) == 0;
      view.allocatable.cpu = kCpus * 1000;
      view.allocatable.pods = 110000;
      view.domains[static_cast<std::size_t>(Level::kLeaf)] = std::to_string(i / kNodesOfLeaf);
    }
    for (const auto& view : nodes_) input.rooms.push_back({&view, view.allocatable});
    for (int i = 0, gangs = any(2, 14); i < gangs; ++i) run("r" + std::to_string(i));
    const std::string name = "waits";
    input.queued.push_back({name, name, "default", "default", 5, {}, {}});
    if (any(0, 3) == 0) input.queued.back().pods_per_node = any(1, 2);
    if (seed % 3 == 0) input.queued[0].required = Level::kLeaf;
    for (int roles = any(1, 4) == 4 ? 2 : 1; roles > 0; --roles)
      input.queued[0].needs.push_back(
          {"role" + std::to_string(roles), amount(any(1, kCpus)), {}, any(1, 5)});
  }

  SchedulerInput input;

 private:
  int any(int from, int to) { return std::uniform_int_distribution<int>(from, to)(random_); }

  static observe::Resources amount(int cpus) {
    observe::Resources resources;
    resources.cpu = cpus * 1000;
    resources.pods = 1000;
    return resources;
  }

  void run(const std::string& name) {
    const WallTime started{std::chrono::seconds(any(0, 1000))};
    RunningGang gang{name, name, "default", any(0, 6), started, any(0, 9) == 0, {}};
    for (int pods = any(1, 3); pods > 0; --pods) {
      Room& room = input.rooms[static_cast<std::size_t>(any(0, kNodes - 1))];
      const observe::Resources each = amount(any(1, 4));
      if (room.free.times(each, 1) == 0) continue;
      room.free.subtract(each);
      gang.pods.emplace_back(room.node->meta.name, each);
    }
    input.running.push_back(std::move(gang));
  }

  std::mt19937 random_;
  std::vector<observe::NodeView> nodes_;
};

/// Whether the gang fits once these have stopped, and those that stop anyway.
bool fits_without(const SchedulerInput& input, const std::set<std::string>& stopped) {
  std::vector<Room> rooms = input.rooms;
  for (const RunningGang& gang : input.running) {
    if (!gang.stopping && !stopped.contains(gang.id)) continue;
    for (const auto& [node, amount] : gang.pods) {
      const auto room = std::ranges::find_if(
          rooms, [&](const Room& other) { return other.node->meta.name == node; });
      room->free.add(amount);
    }
  }
  const QueuedGang& gang = input.queued[0];
  Allowances allowances;
  const Ask ask{gang.needs, gang.pods_per_node, gang.required};
  const Topology topology(rooms);
  const Headroom headroom(ask, rooms, topology, allowances);
  const bool fits = place(ask, rooms, topology, allowances).has_value();
  if (gang.needs.size() == 1) {
    EXPECT_EQ(fits, headroom.enough());
  }
  return fits;
}

std::set<std::string> one_by_one(const SchedulerInput& input) {
  std::vector<const RunningGang*> candidates;
  for (const RunningGang& gang : input.running) {
    if (!gang.stopping && gang.priority < input.queued[0].priority) candidates.push_back(&gang);
  }
  std::ranges::sort(candidates, [](const RunningGang* a, const RunningGang* b) {
    return a->priority != b->priority ? a->priority < b->priority : a->started > b->started;
  });
  std::set<std::string> stopped;
  for (std::size_t i = 0; !fits_without(input, stopped); ++i) {
    if (i == candidates.size()) return {};
    stopped.insert(candidates[i]->id);
  }
  for (const RunningGang* candidate : candidates) {
    if (stopped.erase(candidate->id) > 0 && !fits_without(input, stopped))
      stopped.insert(candidate->id);
  }
  return stopped;
}

std::set<std::string> preempted(const SchedulerInput& input) {
  std::set<std::string> ids;
  for (const auto& [id, by] : schedule(input).preempt) ids.insert(id);
  return ids;
}

TEST(Preemption, TakesWhomTheGangNeedsAndNoOther) {
  int preempting = 0;
  int sparing = 0;
  for (unsigned seed = 0; seed < kFleets; ++seed) {
    const CrowdedFleet fleet(seed);
    if (fits_without(fleet.input, {})) continue;
    const std::set<std::string> ours = preempted(fleet.input);
    if (fleet.input.queued[0].needs.size() == 1) {
      ASSERT_EQ(ours, one_by_one(fleet.input)) << "fleet " << seed;
    } else if (!ours.empty()) {
      // With several roles, more room can make the search fail, so the order of trials matters.
      ASSERT_TRUE(fits_without(fleet.input, ours)) << "fleet " << seed;
    }
    preempting += ours.empty() ? 0 : 1;
    sparing += ours.size() > 1 ? 1 : 0;
  }
  EXPECT_GT(preempting, kFleets / 20);
  EXPECT_GT(sparing, kFleets / 50);
}

}  // namespace
}  // namespace paceline::plan
