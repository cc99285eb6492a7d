// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/placement/scheduler.hpp"

#include <algorithm>
#include <set>
#include <span>
#include <unordered_map>

#include "common/contract/injection.hpp"
#include "operator/plan/placement/headroom.hpp"
#include "operator/plan/placement/quota.hpp"

namespace paceline::plan {
namespace {

using observe::Resources;

constexpr const char* kWaitingForRoom = "WaitingForRoom";

class Pass {
 public:
  explicit Pass(SchedulerInput input) : input_(std::move(input)), whole_(input_.rooms) {
    for (std::size_t i = 0; i < whole_.size(); ++i) room_of_.emplace(whole_[i].node->meta.name, i);
    for (const RunningGang& gang : input_.running) {
      give_back(gang, whole_);
      for (const auto& [node, amount] : gang.pods) usage_[gang.queue] += weight(amount);
    }
    any_slots_ = std::ranges::any_of(input_.rooms, [](const Room& room) {
      return room.node->allocatable.get(contract::kRuntimeResource) > 0;
    });
  }

  SchedulerOutput run() {
    while (!input_.queued.empty()) {
      const auto next =
          std::min_element(input_.queued.begin(), input_.queued.end(),
                           [&](const auto& a, const auto& b) { return before(a, b); });
      const QueuedGang gang = std::move(*next);
      input_.queued.erase(next);
      consider(gang);
    }
    return std::move(output_);
  }
  std::size_t searches() const { return searches_; }

 private:
  /// One number to compare the shares of queues: accelerators count most, then CPU.
  static double weight(const Resources& amount) {
    double sum = static_cast<double>(amount.cpu) / 1000.0;
    for (const auto& [name, milli] : amount.other) {
      // A slot is not an accelerator: a node offers one for every pod.
      if (name.find('/') != std::string::npos && name != contract::kRuntimeResource)
        sum += static_cast<double>(milli) / 1000.0 * 16.0;
    }
    return sum;
  }

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

  void consider(const QueuedGang& gang) {
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
    // In one pass room only becomes less: what failed once fails again.
    if (const auto failed = std::ranges::find_if(
            failures_, [&](const Failure& failure) { return failure.is_of(gang); });
        failed != failures_.end()) {
      Waiting waiting = failed->waiting;
      if (waiting.reason == kWaitingForRoom) waiting.message += " (behind " + head_ + ")";
      output_.waiting.insert_or_assign(gang.id, std::move(waiting));
      return;
    }
    if (any_slots_ && !gang.copies && admit_with_slots(gang)) return;
    if (auto chosen = search(gang, input_.rooms)) {
      admit(gang, *chosen);
    } else {
      refuse(gang, chosen.error());
    }
  }

  /// Takes back a placement that was only a trial. Copying ten thousand rooms would cost more.
  static void undo(const QueuedGang& gang, const std::vector<std::size_t>& chosen,
                   std::vector<Room>& rooms) {
    std::size_t rank = 0;
    for (const Need& need : gang.needs) {
      for (int i = 0; i < need.count; ++i) rooms[chosen[rank++]].free.add(need.each);
    }
  }

  std::expected<std::vector<std::size_t>, std::string> search(const QueuedGang& gang,
                                                              std::vector<Room>& rooms) {
    ++searches_;
    return place(gang.needs, gang.exclusive_nodes, rooms, allowances_);
  }

  bool fits(const QueuedGang& gang, std::vector<Room>& rooms) {
    if (gang.needs.size() == 1) {
      // Of one role it is enough to know how many pods the nodes take.
      ++searches_;
      return Headroom(gang.needs, gang.exclusive_nodes, rooms, allowances_).enough();
    }
    const auto chosen = search(gang, rooms);
    if (chosen) undo(gang, *chosen, rooms);
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

  void admit(const QueuedGang& gang, const std::vector<std::size_t>& chosen) {
    auto& nodes = output_.placements[gang.id];
    std::size_t rank = 0;
    RunningGang now{gang.id, gang.name, gang.queue, gang.priority, input_.now, false, {}};
    for (const Need& need : gang.needs) {
      for (int i = 0; i < need.count; ++i) {
        const Room& room = input_.rooms[chosen[rank++]];
        nodes.push_back(room.node->meta.name);
        now.pods.emplace_back(nodes.back(), need.each);
        usage_[gang.queue] += weight(need.each);
      }
    }
    reserve_quota(gang, input_.quotas[gang.ns]);
  }

  void refuse(const QueuedGang& gang, const std::string& why) {
    if (reserved_ && fits(gang, whole_)) {
      failures_.push_back({gang.needs, gang.exclusive_nodes, {kWaitingForRoom, why}});
      wait(gang, kWaitingForRoom, why + " (behind " + head_ + ")");
      return;
    }
    const auto alone = search(gang, whole_);
    if (!alone) {
      // No job waits for a job that cannot run; reserve nothing for it.
      const Waiting waiting =
          fits_without_gpu_direct(gang)
              ? Waiting{"GpuDirectNotReady",
                        "spec.network.gpuDirect is Required: " + alone.error() +
                            "; `kubectl get nodefabrics -o wide` shows why"}
              : Waiting{"TooLarge",
                        "does not fit even when all other jobs have ended: " + alone.error()};
      failures_.push_back({gang.needs, gang.exclusive_nodes, waiting});
      output_.waiting.insert_or_assign(gang.id, waiting);
      return;
    }
    undo(gang, *alone, whole_);
    failures_.push_back({gang.needs, gang.exclusive_nodes, {kWaitingForRoom, why}});
    head_ = gang.name;
    reserved_ = true;
    const std::string victims = make_room(gang);
    if (victims.empty()) {
      wait(gang, kWaitingForRoom, why);
    } else {
      wait(gang, "Preempting", "waits for jobs of lower priority to stop: " + victims);
    }
    hold(gang, *alone);
  }

  bool fits_without_gpu_direct(const QueuedGang& gang) {
    QueuedGang relaxed = gang;
    bool any = false;
    for (Need& need : relaxed.needs) {
      any = std::exchange(need.constraints.gpu_direct, false) || any;
      need.constraints.excluded.clear();
    }
    if (!any) return false;
    std::vector<Room> rooms = whole_;
    return search(relaxed, rooms).has_value();
  }

  /// From now on a node offers at most what the head's reservation leaves once all running gangs
  /// have ended.
  void hold(const QueuedGang& gang, const std::vector<std::size_t>& chosen) {
    std::vector<Room> after = whole_;
    std::size_t rank = 0;
    for (const Need& need : gang.needs) {
      for (int i = 0; i < need.count; ++i) after[chosen[rank++]].free.subtract(need.each);
    }
    for (const std::size_t i : std::set<std::size_t>(chosen.begin(), chosen.end())) {
      Resources& free = input_.rooms[i].free;
      const Resources& limit = after[i].free;
      free.cpu = std::min(free.cpu, limit.cpu);
      free.memory = std::min(free.memory, limit.memory);
      free.pods = std::min(free.pods, limit.pods);
      for (auto& [name, amount] : free.other) amount = std::min(amount, limit.get(name));
    }
  }

  /// Chooses whole gangs of lower priority, lowest and youngest first, until the gang fits. Gangs
  /// that are stopping anyway come first and are not named again.
  std::string make_room(const QueuedGang& gang) {
    Trial trial(*this, gang);
    std::vector<const RunningGang*> victims;
    bool any = false;
    for (const RunningGang& running : input_.running) {
      if (running.stopping) {
        trial.stop(running);
        any = true;
      } else if (running.priority < gang.priority && trial.concerns(running)) {
        victims.push_back(&running);
      }
    }
    if (any && trial.fits()) return "";
    std::sort(victims.begin(), victims.end(), [](const RunningGang* a, const RunningGang* b) {
      return a->priority != b->priority ? a->priority < b->priority : a->started > b->started;
    });
    victims.resize(fewest(trial, victims));
    if (!victims.empty()) {
      // The last one is needed: without it, those before it were too few.
      const RunningGang* last = victims.back();
      victims.pop_back();
      victims = needed(trial, victims);
      victims.push_back(last);
    }
    std::string names;
    for (const RunningGang* victim : victims) {
      output_.preempt.emplace(victim->id, gang.name);
      names += (names.empty() ? "" : ", ") + victim->name;
    }
    return names;
  }

  /// The rooms as they would be if some running gangs stopped.
  class Trial {
   public:
    Trial(Pass& pass, const QueuedGang& gang)
        : pass_(pass),
          gang_(gang),
          rooms_(pass.input_.rooms),
          headroom_(gang.needs, gang.exclusive_nodes, rooms_, pass.allowances_) {}

    void stop(const RunningGang& running) {
      each_room(running, [](Room& room, const Resources& amount) { room.free.add(amount); });
    }
    void go_on(const RunningGang& running) {
      each_room(running, [](Room& room, const Resources& amount) { room.free.subtract(amount); });
    }
    bool may_fit() const { return headroom_.enough(); }
    bool fits() {
      if (!may_fit()) return false;
      return gang_.needs.size() == 1 || pass_.fits(gang_, rooms_);
    }
    bool concerns(const RunningGang& running) const {
      return std::ranges::any_of(running.pods, [&](const auto& pod) {
        const auto room = pass_.room_of_.find(pod.first);
        return room != pass_.room_of_.end() && headroom_.concerns(room->second);
      });
    }

   private:
    template <typename Change>
    void each_room(const RunningGang& running, Change change) {
      for (const auto& [node, amount] : running.pods) {
        const auto room = pass_.room_of_.find(node);
        if (room == pass_.room_of_.end()) continue;
        change(rooms_[room->second], amount);
        headroom_.follow(room->second, rooms_[room->second]);
      }
    }

    Pass& pass_;
    const QueuedGang& gang_;
    std::vector<Room> rooms_;
    Headroom headroom_;
  };

  using Candidates = std::vector<const RunningGang*>;

  /// How many of the candidates, from the first on, must stop; 0 if even all of them are too few.
  /// They have stopped in the trial. More room never hurts, so halving finds the number.
  static std::size_t fewest(Trial& trial, const Candidates& candidates) {
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
  static Candidates needed(Trial& trial, std::span<const RunningGang* const> victims) {
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

  void wait(const QueuedGang& gang, const char* reason, std::string message) {
    output_.waiting.insert_or_assign(gang.id, Waiting{reason, std::move(message)});
  }

  /// A shape of gang that could not be placed.
  struct Failure {
    std::vector<Need> needs;
    bool exclusive_nodes = false;
    Waiting waiting;
    bool is_of(const QueuedGang& gang) const {
      return exclusive_nodes == gang.exclusive_nodes && needs == gang.needs;
    }
  };

  SchedulerInput input_;
  std::vector<Failure> failures_;
  Allowances allowances_;
  std::vector<Room> whole_;  // free if no gang of a job were there
  std::unordered_map<std::string, std::size_t> room_of_;
  std::map<std::string, double> usage_;
  std::set<std::string> blocked_;  // namespaces whose quota an earlier gang waits for
  bool any_slots_ = false;         // some node offers slots
  bool reserved_ = false;
  std::string head_;
  std::size_t searches_ = 0;
  SchedulerOutput output_;
};

}  // namespace

std::vector<Need> with_slots(std::vector<Need> needs) {
  for (Need& need : needs) need.each.set(contract::kRuntimeResource, 1000);
  return needs;
}

SchedulerOutput schedule(SchedulerInput input, std::size_t* searches) {
  Pass pass(std::move(input));
  SchedulerOutput output = pass.run();
  if (searches != nullptr) *searches = pass.searches();
  return output;
}

}  // namespace paceline::plan
