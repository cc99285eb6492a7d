// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/queue/victims.hpp"

#include <algorithm>
#include <span>

#include "operator/plan/placement/headroom.hpp"

namespace paceline::plan {
namespace {

using observe::Resources;

/// The rooms as they would be if some running gangs stopped.
class Trial {
 public:
  Trial(Stage stage, const QueuedGang& gang)
      : stage_(stage),
        ask_{gang.needs, gang.pods_per_node, gang.required},
        rooms_(stage.rooms),
        headroom_(ask_, rooms_, stage.topology, stage.allowances) {}

  void stop(const RunningGang& running) {
    each_room(running, [](Room& room, const Resources& amount) { room.free.add(amount); });
  }
  void go_on(const RunningGang& running) {
    each_room(running, [](Room& room, const Resources& amount) { room.free.subtract(amount); });
  }
  bool may_fit() const { return headroom_.enough(); }
  bool fits() {
    if (!may_fit()) return false;
    // Of one role it is enough to know how many pods the nodes take.
    if (ask_.needs.size() == 1) return true;
    ++stage_.searches;
    const auto chosen = place(ask_, rooms_, stage_.topology, stage_.allowances);
    if (!chosen) return false;
    std::size_t rank = 0;
    for (const Need& need : ask_.needs) {
      for (int i = 0; i < need.count; ++i) rooms_[chosen->rooms[rank++]].free.add(need.each);
    }
    return true;
  }
  bool concerns(const RunningGang& running) const {
    return std::ranges::any_of(running.pods, [&](const auto& pod) {
      const auto room = stage_.room_of.find(pod.first);
      return room != stage_.room_of.end() && headroom_.concerns(room->second);
    });
  }

 private:
  template <typename Change>
  void each_room(const RunningGang& running, Change change) {
    for (const auto& [node, amount] : running.pods) {
      const auto room = stage_.room_of.find(node);
      if (room == stage_.room_of.end()) continue;
      change(rooms_[room->second], amount);
      headroom_.follow(room->second, rooms_[room->second]);
    }
  }

  Stage stage_;
  const Ask ask_;
  std::vector<Room> rooms_;
  Headroom headroom_;
};

using Candidates = std::vector<const RunningGang*>;

/// How many of the candidates, from the first on, must stop; 0 if even all of them are too few.
/// They have stopped in the trial. More room never hurts, so halving finds the number.
std::size_t fewest(Trial& trial, const Candidates& candidates) {
  std::size_t gone = 0;
  const auto go_to = [&](std::size_t count) {
    while (gone < count) trial.stop(*candidates[gone++]);
    while (gone > count) trial.go_on(*candidates[--gone]);
  };
  go_to(candidates.size());
  if (!trial.fits()) return 0;
  std::size_t low = 1;
  std::size_t high = candidates.size();
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    go_to(middle);
    if (trial.fits()) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  go_to(high);
  return high;
}

/// The victims without those that turn out not to be needed, tried from the first on. All of
/// them have stopped in the trial. Whole halves are tried first, as most are of one kind.
Candidates needed(Trial& trial, std::span<const RunningGang* const> victims) {
  std::size_t spared = 0;
  while (spared < victims.size() && trial.may_fit()) trial.go_on(*victims[spared++]);
  if (trial.fits()) return {};
  while (spared > 0) trial.stop(*victims[--spared]);
  if (victims.size() == 1) return {victims.front()};
  const std::size_t half = victims.size() / 2;
  Candidates kept = needed(trial, victims.first(half));
  const Candidates more = needed(trial, victims.subspan(half));
  kept.insert(kept.end(), more.begin(), more.end());
  return kept;
}

}  // namespace

std::vector<const RunningGang*> victims(const QueuedGang& gang,
                                        const std::vector<RunningGang>& running, Stage stage) {
  Trial trial(stage, gang);
  Candidates chosen;
  bool any = false;
  for (const RunningGang& one : running) {
    if (one.stopping) {
      trial.stop(one);
      any = true;
    } else if (one.priority < gang.priority && trial.concerns(one)) {
      chosen.push_back(&one);
    }
  }
  if (any && trial.fits()) return {};
  std::sort(chosen.begin(), chosen.end(), [](const RunningGang* a, const RunningGang* b) {
    return a->priority != b->priority ? a->priority < b->priority : a->started > b->started;
  });
  chosen.resize(fewest(trial, chosen));
  if (chosen.empty()) return chosen;
  // The last one is needed: without it, those before it were too few.
  const RunningGang* last = chosen.back();
  chosen.pop_back();
  chosen = needed(trial, chosen);
  chosen.push_back(last);
  return chosen;
}

}  // namespace paceline::plan
