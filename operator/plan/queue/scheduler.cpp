// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/queue/scheduler.hpp"

#include <algorithm>
#include <exception>
#include <set>
#include <unordered_map>

#include "common/contract/injection.hpp"
#include "operator/plan/placement/growth.hpp"
#include "operator/plan/placement/headroom.hpp"
#include "operator/plan/placement/quota.hpp"
#include "operator/plan/queue/sizes.hpp"
#include "operator/plan/queue/victims.hpp"

namespace paceline::plan {
namespace {

using observe::Resources;

constexpr const char* kWaitingForRoom = "WaitingForRoom";
constexpr const char* kWaitingForCloserNodes = "WaitingForCloserNodes";

class Pass {
 public:
  explicit Pass(SchedulerInput input)
      : input_(std::move(input)), topology_(input_.rooms), whole_(input_.rooms) {
    for (std::size_t i = 0; i < whole_.size(); ++i) room_of_.emplace(whole_[i].node->meta.name, i);
    for (const RunningGang& gang : input_.running) {
      give_back(gang, whole_);
      for (const auto& [node, amount] : gang.pods) usage_[gang.queue] += share_weight(amount);
    }
    any_slots_ = std::ranges::any_of(input_.rooms, [](const Room& room) {
      return room.node->allocatable.get(contract::kRuntimeResource) > 0;
    });
  }

  SchedulerOutput run() {
    growth_.begin(input_, held_room_);
    while (!input_.queued.empty()) {
      const auto next =
          std::min_element(input_.queued.begin(), input_.queued.end(),
                           [&](const auto& a, const auto& b) { return before(a, b); });
      const QueuedGang gang = std::move(*next);
      input_.queued.erase(next);
      notes_.order.push_back(gang.id);
      contain(gang.id, output_.waiting, [&] { consider(gang); });
      if (const auto waiting = output_.waiting.find(gang.id); waiting != output_.waiting.end())
        growth_.consider(gang, waiting->second, held_room_, input_.quotas[gang.ns], output_);
    }
    grow_running();
    return std::move(output_);
  }
  PassNotes take_notes() { return std::move(notes_); }

 private:
  bool before(const QueuedGang& a, const QueuedGang& b) const {
    if (a.priority != b.priority) return a.priority > b.priority;
    const bool old_a = input_.now - a.created > input_.ageing;
    const bool old_b = input_.now - b.created > input_.ageing;
    if (old_a != old_b) return old_a;
    if (!old_a) {
      const double share_a = share(a.queue);
      const double share_b = share(b.queue);
      if (share_a != share_b) return share_a < share_b;
    }
    if (a.created != b.created) return a.created < b.created;
    return a.id < b.id;
  }
  double share(const std::string& queue) const {
    const auto it = usage_.find(queue);
    return it == usage_.end() ? 0 : it->second;
  }

  void give_back(const RunningGang& gang, std::vector<Room>& rooms) const {
    for (const auto& [node, amount] : gang.pods) {
      if (const auto it = room_of_.find(node); it != room_of_.end())
        rooms[it->second].free.add(amount);
    }
  }

  /// An exception about one gang is the answer to it, and the others go on.
  void contain(const std::string& id, std::map<std::string, Waiting>& answers, auto work) {
    try {
      work();
    } catch (const std::exception& error) {
      output_.placements.erase(id);
      answers.insert_or_assign(id, Waiting{kInternalError, error.what()});
    }
  }

  void consider(const QueuedGang& gang) {
    if (gang.preferred && prefers_to_wait(gang)) return;
    if (!gang.elastic) return consider_size(gang);
    if (!start_elastic(gang)) consider_size(with_size(gang, gang.elastic->fewest));
  }

  /// Starts the gang in one domain of the level that it prefers, or has it wait for one from when
  /// it could run elsewhere. False: it is to be considered as a gang without preference.
  bool prefers_to_wait(const QueuedGang& gang) {
    if (blocked_.contains(gang.ns) || !quota_refusal(gang, input_.quotas[gang.ns]).empty())
      return false;
    const auto& [level, until, waits] = *gang.preferred;
    const QueuedGang least = gang.elastic ? with_size(gang, gang.elastic->fewest) : gang;
    if (!waits &&
        std::ranges::any_of(failures_, [&](const Failure& one) { return one.is_of(least); }))
      return false;
    QueuedGang close = gang;
    close.required = level;
    auto failed = std::ranges::find_if(
        not_close_, [&](const Failure& failure) { return failure.is_of(close); });
    if (failed == not_close_.end()) {
      const std::string why = start(close);
      if (why.empty()) return true;
      // A level that could never hold it, or whose domains no label names, is not worth a wait.
      Waiting waiting;
      if (fits(close, whole_))
        waiting = {kWaitingForCloserNodes,
                   why + "; waits for one " + std::string(noun(level, false))};
      not_close_.push_back({close.needs, close.pods_per_node, level, std::move(waiting)});
      failed = not_close_.end() - 1;
    }
    if (failed->waiting.reason.empty()) return false;
    // It let other gangs take the room elsewhere, so it does not preempt them before its limit.
    if (!waits && !fits(least, input_.rooms)) return false;
    Waiting waiting = failed->waiting;
    waiting.until = until;
    output_.waiting.insert_or_assign(gang.id, std::move(waiting));
    return true;
  }

  /// Starts the gang in the largest size that has room. False: not even the smallest has.
  bool start_elastic(const QueuedGang& gang) {
    if (blocked_.contains(gang.ns)) return false;
    // In one pass room only becomes less: what failed once fails again.
    const QueuedGang least = with_size(gang, gang.elastic->fewest);
    if (std::ranges::any_of(failures_, [&](const Failure& one) { return one.is_of(least); }))
      return false;
    const auto& quotas = input_.quotas[gang.ns];
    std::string why = quota_refusal(gang, quotas);
    if (why.empty()) why = start(gang);
    if (why.empty()) return true;
    const auto size =
        largest(gang.elastic->fewest, gang.needs[gang.elastic->need].count - 1, [&](int pods) {
          const QueuedGang sized = with_size(gang, pods);
          return quota_refusal(sized, quotas).empty() && fits(sized, input_.rooms);
        });
    if (!size || !start(with_size(gang, *size)).empty()) return false;
    output_.smaller.emplace(gang.id, std::move(why));
    return true;
  }

  void grow_running() {
    std::ranges::sort(input_.growing, [](const GrowingGang& a, const GrowingGang& b) {
      if (a.priority != b.priority) return a.priority > b.priority;
      return a.created != b.created ? a.created < b.created : a.id < b.id;
    });
    for (const GrowingGang& gang : input_.growing)
      contain(gang.id, output_.full, [&] { grow_one(gang); });
  }

  void grow_one(const GrowingGang& gang) {
    auto& quotas = input_.quotas[gang.ns];
    auto grown = grow(gang, input_.rooms, stage(input_.rooms), quotas);
    if (grown) {
      for (const std::string& node : grown->nodes) growth_.place(node, gang.need.each);
      output_.grown.emplace(gang.id, std::move(*grown));
    } else {
      growth_.consider(pods_to_add(gang), grown.error(), held_room_, quotas, output_);
      output_.full.emplace(gang.id, std::move(grown.error()));
    }
  }

  void consider_size(const QueuedGang& gang) {
    // No job waits behind one that its quota never admits.
    if (std::string never = impossible_quota(gang, input_.quotas[gang.ns]); !never.empty()) {
      wait(gang, "QuotaTooSmall", std::move(never));
      return;
    }
    if (const std::string full = quota_refusal(gang, input_.quotas[gang.ns]);
        !full.empty() || blocked_.contains(gang.ns)) {
      wait(gang, "QuotaExceeded",
           full.empty() ? "an earlier job of namespace " + gang.ns + " waits for its quota" : full);
      blocked_.insert(gang.ns);
      return;
    }
    if (gang.by_other) return leave_to_other(gang);
    // In one pass room only becomes less: what failed once fails again.
    if (const auto failed = std::ranges::find_if(
            failures_, [&](const Failure& failure) { return failure.is_of(gang); });
        failed != failures_.end()) {
      Waiting waiting = failed->waiting;
      if (waiting.reason == kWaitingForRoom) waiting.message += " (behind " + head_ + ")";
      output_.waiting.insert_or_assign(gang.id, std::move(waiting));
      return;
    }
    if (const std::string why = start(gang); !why.empty()) refuse(gang, why);
  }

  void leave_to_other(const QueuedGang& gang) {
    std::size_t pods = 0;
    for (const Need& need : gang.needs) pods += static_cast<std::size_t>(need.count);
    output_.placements[gang.id].resize(pods);
    reserve_quota(gang, input_.quotas[gang.ns]);
  }

  /// Admits the gang if there is room; else returns why there is none.
  std::string start(const QueuedGang& gang) {
    if (any_slots_ && !gang.copies && admit_with_slots(gang)) return "";
    const auto chosen = search(gang, input_.rooms);
    if (!chosen) return chosen.error();
    admit(gang, *chosen);
    return "";
  }

  /// Takes back a placement that was only a trial. Copying ten thousand rooms would cost more.
  static void undo(const QueuedGang& gang, const std::vector<std::size_t>& chosen,
                   std::vector<Room>& rooms) {
    std::size_t rank = 0;
    for (const Need& need : gang.needs) {
      for (int i = 0; i < need.count; ++i) rooms[chosen[rank++]].free.add(need.each);
    }
  }

  std::expected<Placement, std::string> search(const QueuedGang& gang, std::vector<Room>& rooms) {
    ++notes_.searches;
    return place(Ask{gang.needs, gang.pods_per_node, gang.required}, rooms, topology_, allowances_);
  }

  bool fits(const QueuedGang& gang, std::vector<Room>& rooms) {
    if (gang.needs.size() == 1) {
      // Of one role it is enough to know how many pods the nodes take.
      ++notes_.searches;
      return Headroom(Ask{gang.needs, gang.pods_per_node, gang.required}, rooms, topology_,
                      allowances_)
          .enough();
    }
    const auto chosen = search(gang, rooms);
    if (chosen) undo(gang, chosen->rooms, rooms);
    return chosen.has_value();
  }

  bool admit_with_slots(const QueuedGang& gang) {
    QueuedGang slotted = gang;
    slotted.needs = with_slots(std::move(slotted.needs));
    if (!quota_refusal(slotted, input_.quotas[slotted.ns]).empty()) return false;
    const auto chosen = search(slotted, input_.rooms);
    if (!chosen) return false;
    admit(slotted, *chosen);
    output_.slotted.insert(slotted.id);
    return true;
  }

  void admit(const QueuedGang& gang, const Placement& chosen) {
    output_.where[gang.id] = chosen.where;
    auto& nodes = output_.placements[gang.id];
    std::size_t rank = 0;
    RunningGang now{gang.id, gang.name, gang.queue, gang.priority, input_.now, false, {}};
    for (const Need& need : gang.needs) {
      for (int i = 0; i < need.count; ++i) {
        const Room& room = input_.rooms[chosen.rooms[rank++]];
        nodes.push_back(room.node->meta.name);
        now.pods.emplace_back(nodes.back(), need.each);
        growth_.place(nodes.back(), need.each);
        usage_[gang.queue] += share_weight(need.each);
      }
    }
    reserve_quota(gang, input_.quotas[gang.ns]);
  }

  void refuse(const QueuedGang& gang, const std::string& why) {
    if (reserved_ && fits(gang, whole_)) {
      failures_.push_back({gang.needs, gang.pods_per_node, gang.required, {kWaitingForRoom, why}});
      wait(gang, kWaitingForRoom, why + " (behind " + head_ + ")");
      return;
    }
    const auto alone = search(gang, whole_);
    if (!alone) {
      // No job waits for a job that cannot run; reserve nothing for it.
      const Waiting waiting = never_fits(gang, alone.error());
      failures_.push_back({gang.needs, gang.pods_per_node, gang.required, waiting});
      output_.waiting.insert_or_assign(gang.id, waiting);
      return;
    }
    undo(gang, alone->rooms, whole_);
    failures_.push_back({gang.needs, gang.pods_per_node, gang.required, {kWaitingForRoom, why}});
    head_ = gang.name;
    reserved_ = true;
    const std::string victims = make_room(gang);
    if (victims.empty()) {
      wait(gang, kWaitingForRoom, why);
    } else {
      wait(gang, "Preempting", "waits for jobs of lower priority to stop: " + victims);
    }
    hold(gang, alone->rooms);
  }

  /// Why the gang does not fit even when all other jobs have ended.
  Waiting never_fits(const QueuedGang& gang, const std::string& why) {
    QueuedGang relaxed = gang;
    bool gpu_direct = false;
    bool excluded = false;
    for (Need& need : relaxed.needs) {
      gpu_direct = std::exchange(need.constraints.gpu_direct, false) || gpu_direct;
      excluded = !std::exchange(need.constraints.excluded, {}).empty() || excluded;
    }
    std::vector<Room> rooms = whole_;
    if ((gpu_direct || excluded) && search(relaxed, rooms)) {
      if (gpu_direct)
        return {"GpuDirectNotReady", "spec.network.gpuDirect is Required: " + why +
                                         "; `kubectl get nodefabrics -o wide` shows why" +
                                         (excluded ? ", and status.excludedNodes" : "")};
      return {"NodesExcluded",
              "waits for nodes where it failed to count as usable again: " + why +
                  "; status.excludedNodes says when, and suspending the job forgets them"};
    }
    return {"TooLarge", "does not fit even when all other jobs have ended: " + why};
  }

  /// From now on a node offers at most what the head's reservation leaves once all running gangs
  /// have ended.
  void hold(const QueuedGang& gang, const std::vector<std::size_t>& chosen) {
    std::vector<Room> after = whole_;
    std::size_t rank = 0;
    for (const Need& need : gang.needs) {
      for (int i = 0; i < need.count; ++i) after[chosen[rank++]].free.subtract(need.each);
    }
    for (const std::size_t i : std::set<std::size_t>(chosen.begin(), chosen.end()))
      input_.rooms[i].free.lower_to(after[i].free);
  }

  /// Has the gangs stop that must make room, and names them.
  std::string make_room(const QueuedGang& gang) {
    std::string names;
    for (const RunningGang* victim : victims(gang, input_.running, stage(input_.rooms))) {
      output_.preempt.emplace(victim->id, gang.name);
      names += (names.empty() ? "" : ", ") + victim->name;
    }
    return names;
  }

  Stage stage(const std::vector<Room>& rooms) {
    return {rooms, room_of_, topology_, allowances_, notes_.searches};
  }

  void wait(const QueuedGang& gang, const char* reason, std::string message) {
    output_.waiting.insert_or_assign(gang.id, Waiting{reason, std::move(message)});
  }

  /// A shape of gang that could not be placed.
  struct Failure {
    std::vector<Need> needs;
    std::optional<int> pods_per_node;
    std::optional<Level> required;
    Waiting waiting;
    bool is_of(const QueuedGang& gang) const {
      return pods_per_node == gang.pods_per_node && required == gang.required &&
             needs == gang.needs;
    }
  };

  SchedulerInput input_;
  std::vector<Failure> failures_;
  // those that found no room in one domain of a level that they prefer; without a reason: it could
  // never hold them
  std::vector<Failure> not_close_;
  Topology topology_;
  Growth growth_;
  Allowances allowances_;
  std::vector<Room> whole_;  // free if no gang of a job were there
  std::unordered_map<std::string, std::size_t> room_of_;
  const Growth::RoomOf held_room_ = [this](const std::string& node) {
    const auto room = room_of_.find(node);
    return room == room_of_.end() ? nullptr : &input_.rooms[room->second];
  };
  std::map<std::string, double> usage_;
  std::set<std::string> blocked_;  // namespaces whose quota an earlier gang waits for
  bool any_slots_ = false;         // some node offers slots
  bool reserved_ = false;
  std::string head_;
  PassNotes notes_;
  SchedulerOutput output_;
};

}  // namespace

std::vector<Need> with_slots(std::vector<Need> needs) {
  for (Need& need : needs) need.each.set(contract::kRuntimeResource, 1000);
  return needs;
}

SchedulerOutput schedule(SchedulerInput input, PassNotes* notes) {
  Pass pass(std::move(input));
  SchedulerOutput output = pass.run();
  if (notes != nullptr) *notes = pass.take_notes();
  return output;
}

}  // namespace paceline::plan
