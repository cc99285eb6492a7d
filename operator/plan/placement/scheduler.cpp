// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/placement/scheduler.hpp"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "common/contract/injection.hpp"
#include "operator/plan/placement/quota.hpp"

namespace paceline::plan {
namespace {

using observe::Resources;

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
    if (const std::string full = quota_refusal(gang, input_.quotas[gang.ns]);
        !full.empty() || blocked_.contains(gang.ns)) {
      wait(gang, "QuotaExceeded",
           full.empty() ? "an earlier job of namespace " + gang.ns + " waits for its quota" : full);
      blocked_.insert(gang.ns);
      return;
    }
    if (any_slots_ && admit_with_slots(gang)) return;
    if (auto chosen = place(gang.needs, gang.exclusive_nodes, input_.rooms)) {
      admit(gang, *chosen);
      return;
    } else {
      refuse(gang, chosen.error());
    }
  }

  bool admit_with_slots(const QueuedGang& gang) {
    QueuedGang slotted = gang;
    slotted.needs = with_slots(std::move(slotted.needs));
    if (!quota_refusal(slotted, input_.quotas[slotted.ns]).empty()) return false;
    const auto chosen = place(slotted.needs, slotted.exclusive_nodes, input_.rooms);
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
    const auto alone = place(gang.needs, gang.exclusive_nodes, whole_);
    if (alone) {
      // This was only a trial: give the room back, which is cheaper than copying ten thousand rooms
      // for every queued job.
      std::size_t rank = 0;
      for (const Need& need : gang.needs) {
        for (int i = 0; i < need.count; ++i) whole_[(*alone)[rank++]].free.add(need.each);
      }
    } else {
      // No job waits for a job that cannot run; reserve nothing for it.
      if (fits_without_gpu_direct(gang)) {
        wait(gang, "GpuDirectNotReady",
             "spec.network.gpuDirect is Required: " + alone.error() +
                 "; `kubectl get nodefabrics -o wide` shows why");
      } else {
        wait(gang, "TooLarge",
             "does not fit even when all other jobs have ended: " + alone.error());
      }
      return;
    }
    if (reserved_) {
      wait(gang, "WaitingForRoom", why + " (behind " + head_ + ")");
      return;
    }
    head_ = gang.name;
    reserved_ = true;
    const std::string victims = make_room(gang);
    if (victims.empty()) {
      wait(gang, "WaitingForRoom", why);
    } else {
      wait(gang, "Preempting", "waits for jobs of lower priority to stop: " + victims);
    }
    hold(gang, *alone);
  }

  bool fits_without_gpu_direct(const QueuedGang& gang) const {
    QueuedGang relaxed = gang;
    bool any = false;
    for (Need& need : relaxed.needs) {
      any = std::exchange(need.constraints.gpu_direct, false) || any;
      need.constraints.excluded.clear();
    }
    if (!any) return false;
    std::vector<Room> rooms = whole_;
    return place(relaxed.needs, relaxed.exclusive_nodes, rooms).has_value();
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
    std::vector<Room> rooms = input_.rooms;
    bool any = false;
    for (const RunningGang& running : input_.running) {
      if (!running.stopping) continue;
      give_back(running, rooms);
      any = true;
    }
    if (any && place(gang.needs, gang.exclusive_nodes, rooms)) return "";
    std::vector<const RunningGang*> candidates;
    for (const RunningGang& running : input_.running) {
      if (!running.stopping && running.priority < gang.priority) candidates.push_back(&running);
    }
    std::sort(candidates.begin(), candidates.end(), [](const RunningGang* a, const RunningGang* b) {
      return a->priority != b->priority ? a->priority < b->priority : a->started > b->started;
    });
    std::vector<const RunningGang*> victims;
    for (const RunningGang* candidate : candidates) {
      give_back(*candidate, rooms);
      victims.push_back(candidate);
      std::vector<Room> trial = rooms;
      if (!place(gang.needs, gang.exclusive_nodes, trial)) continue;
      // Victims that turn out not to be needed are spared.
      for (std::size_t i = 0; i + 1 < victims.size();) {
        std::vector<Room> without = rooms;
        for (const auto& [node, amount] : victims[i]->pods) {
          if (const auto it = room_of_.find(node); it != room_of_.end())
            without[it->second].free.subtract(amount);
        }
        if (place(gang.needs, gang.exclusive_nodes, without)) {
          for (const auto& [node, amount] : victims[i]->pods) {
            if (const auto it = room_of_.find(node); it != room_of_.end())
              rooms[it->second].free.subtract(amount);
          }
          victims.erase(victims.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          ++i;
        }
      }
      std::string names;
      for (const RunningGang* victim : victims) {
        output_.preempt.emplace(victim->id, gang.name);
        names += (names.empty() ? "" : ", ") + victim->name;
      }
      return names;
    }
    return "";
  }

  void wait(const QueuedGang& gang, const char* reason, std::string message) {
    output_.waiting.insert_or_assign(gang.id, Waiting{reason, std::move(message)});
  }

  SchedulerInput input_;
  std::vector<Room> whole_;  // free if no gang of a job were there
  std::unordered_map<std::string, std::size_t> room_of_;
  std::map<std::string, double> usage_;
  std::set<std::string> blocked_;  // namespaces whose quota an earlier gang waits for
  bool any_slots_ = false;         // some node offers slots
  bool reserved_ = false;
  std::string head_;
  SchedulerOutput output_;
};

}  // namespace

std::vector<Need> with_slots(std::vector<Need> needs) {
  for (Need& need : needs) need.each.set(contract::kRuntimeResource, 1000);
  return needs;
}

SchedulerOutput schedule(SchedulerInput input) { return Pass(std::move(input)).run(); }

}  // namespace paceline::plan
