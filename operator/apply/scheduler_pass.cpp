// SPDX-License-Identifier: Apache-2.0
#include "operator/apply/scheduler_pass.hpp"

#include <algorithm>

#include "operator/plan/placement/quota.hpp"
#include "operator/plan/placement/scheduler.hpp"

namespace paceline::apply {

Snapshot::Snapshot(const Stores& stores)
    : nodes(stores.nodes.list()),
      pods(stores.pods.list()),
      quotas(stores.quotas.list()),
      jobs(stores.jobs.list()),
      fabrics(stores.fabrics.list()) {
  std::sort(nodes.begin(), nodes.end(),
            [](const auto& a, const auto& b) { return a->meta.name < b->meta.name; });
}

Controller::SchedulerPass::SchedulerPass(Controller& controller, const Snapshot& snapshot)
    : controller_(controller) {
  input_.now = controller_.parts_.clock.wall();
  for (const auto& node : snapshot.nodes) {
    room_of_.emplace(node->meta.name, input_.rooms.size());
    input_.rooms.push_back({node.get(), node->allocatable});
  }
  for (const auto& fabric : snapshot.fabrics) {
    const auto it = room_of_.find(fabric->meta.name);
    if (it == room_of_.end()) continue;
    plan::Room& room = input_.rooms[it->second];
    room.fabric = fabric.get();
    room.agent_alive = controller.living_agents_.contains(fabric->meta.name);
  }
  for (const auto& quota : snapshot.quotas) input_.quotas[quota->meta.ns].push_back(*quota);
  read_pods(snapshot);
  read_jobs(snapshot);
}

std::vector<std::string> Controller::SchedulerPass::run() {
  for (const auto& [uid, job] : jobs_) charge(*job);
  seat_replacements();
  for (const std::string& uid : controller_.queued_) {
    if (const auto job = jobs_.find(uid); job != jobs_.end() && job->second->errors.empty())
      queue(*job->second);
  }
  if (!input_.queued.empty()) ask();
  return std::move(wake_);
}

void Controller::SchedulerPass::take(const std::string& node, const observe::Resources& amount) {
  if (const auto it = room_of_.find(node); it != room_of_.end())
    input_.rooms[it->second].free.subtract(amount);
}

void Controller::SchedulerPass::read_pods(const Snapshot& snapshot) {
  for (const auto& pod : snapshot.pods) {
    if (pod->terminal() || pod->place().empty()) continue;
    if (pod->gang) {
      pods_of_[pod->gang->job_uid].push_back(pod.get());
    } else {
      take(pod->place(), pod->requests);
    }
  }
}

void Controller::SchedulerPass::read_jobs(const Snapshot& snapshot) {
  for (const auto& cached : snapshot.jobs) {
    const auto state = controller_.states_.find(cached->meta.uid);
    jobs_.emplace(cached->meta.uid, state == controller_.states_.end()
                                        ? JobPtr(cached)
                                        : controller_.newest(cached, *state->second));
  }
}

void Controller::SchedulerPass::charge(const observe::JobView& job) {
  JobState& state = *controller_.state_of(job);
  plan::RunningGang gang{job.meta.uid,
                         job.meta.name,
                         job.errors.empty() ? api::queue_of(job.job) : "",
                         0,
                         job.status.start_time.value_or(WallTime{}),
                         false,
                         {}};
  std::string priority_name;
  controller_.priority_of(job, priority_name, gang.priority);
  std::vector<std::string> slots;
  if (state.memory.admission) {
    slots = *state.memory.admission;
  } else if (job.status.placed() && !job.status.finished()) {
    slots = job.status.nodes();
  }
  std::vector<plan::Need> slotted;
  std::vector<const observe::Resources*> each;
  if (!slots.empty() && job.errors.empty()) {
    const std::vector<plan::Need>* needs = &controller_.needs_of(job, state);
    if (state.memory.admission ? state.memory.admission_slots : job.status.slots) {
      slotted = plan::with_slots(*needs);
      needs = &slotted;
    }
    for (const plan::Need& need : *needs)
      each.insert(each.end(), static_cast<std::size_t>(need.count), &need.each);
  }
  const std::vector<bool> exists = fill_slots(job.meta.uid, slots, each.size(), gang);
  for (std::size_t rank = 0; rank < std::min(each.size(), slots.size()); ++rank) {
    gang.pods.emplace_back(slots[rank], *each[rank]);
    if (exists[rank]) continue;
    // Placed but not created yet: the quota does not count it.
    for (observe::QuotaView& quota : input_.quotas[job.meta.ns]) {
      for (auto& [resource, used] : quota.used) used += plan::quota_use(*each[rank], resource);
    }
  }
  gang.stopping = slots.empty() || !state.memory.preempted_by.empty();
  for (const auto& [node, amount] : gang.pods) take(node, amount);
  if (!gang.pods.empty()) input_.running.push_back(std::move(gang));
}

std::vector<bool> Controller::SchedulerPass::fill_slots(const std::string& uid,
                                                        const std::vector<std::string>& slots,
                                                        std::size_t ranks,
                                                        plan::RunningGang& gang) const {
  std::vector<bool> exists(ranks, false);
  const auto mine = pods_of_.find(uid);
  if (mine == pods_of_.end()) return exists;
  for (const observe::PodView* pod : mine->second) {
    const auto rank = static_cast<std::size_t>(std::max(0, pod->gang->node_rank));
    if (rank < ranks && rank < slots.size() && slots[rank] == pod->place() && !exists[rank]) {
      exists[rank] = true;
    } else {
      gang.pods.emplace_back(pod->place(), pod->requests);
    }
  }
  return exists;
}

void Controller::SchedulerPass::seat_replacements() {
  for (const auto& [uid, ranks] : controller_.wants_node_) {
    const auto job = jobs_.find(uid);
    if (job == jobs_.end() || !job->second->errors.empty()) continue;
    JobState& state = *controller_.state_of(*job->second);
    for (const int rank : ranks) seat(*job->second, state, rank);
  }
}

void Controller::SchedulerPass::seat(const observe::JobView& job, JobState& state, int rank) {
  int first = 0;
  std::vector<plan::Need> needs = controller_.needs_now(job, state);
  // all pods of a gang get the runtime in the same way
  if (job.status.slots) needs = plan::with_slots(std::move(needs));
  for (const plan::Need& need : needs) {
    if (rank >= first + need.count) {
      first += need.count;
      continue;
    }
    plan::Need single = need;
    single.count = 1;
    std::vector<plan::Room> rooms = input_.rooms;
    if (job.job.spec.scheduling.exclusive_nodes) {
      const std::vector<std::string> slots = job.status.nodes();
      for (plan::Room& room : rooms) {
        if (std::find(slots.begin(), slots.end(), room.node->meta.name) != slots.end())
          room.free = {};
      }
    }
    if (const auto chosen = plan::place({single}, false, rooms)) {
      const std::string& node = rooms[chosen->front()].node->meta.name;
      state.memory.replacement_nodes[rank] = node;
      take(node, single.each);
      wake_.push_back(state.key);
    }
    return;
  }
}

void Controller::SchedulerPass::queue(const observe::JobView& job) {
  JobState& state = *controller_.state_of(job);
  if (state.memory.admission || job.status.placed() || job.status.finished()) return;
  plan::QueuedGang gang{job.meta.uid,
                        job.meta.name,
                        job.meta.ns,
                        api::queue_of(job.job),
                        0,
                        job.job.metadata.created.value_or(WallTime{}),
                        controller_.needs_now(job, state),
                        job.job.spec.scheduling.exclusive_nodes};
  std::string priority_name;
  if (auto refused = controller_.priority_of(job, priority_name, gang.priority)) {
    if (state.memory.waiting != refused) wake_.push_back(state.key);
    state.memory.waiting = std::move(refused);
    return;
  }
  input_.queued.push_back(std::move(gang));
}

void Controller::SchedulerPass::ask() {
  plan::SchedulerOutput output = plan::schedule(std::move(input_));
  const auto tell = [this](const std::string& uid) -> plan::Memory& {
    JobState& state = *controller_.states_.at(uid);
    wake_.push_back(state.key);
    return state.memory;
  };
  for (auto& [uid, nodes] : output.placements) {
    plan::Memory& memory = tell(uid);
    memory.admission = std::move(nodes);
    memory.admission_slots = output.slotted.contains(uid);
    memory.waiting.reset();
    controller_.queued_.erase(uid);
  }
  for (auto& [uid, waiting] : output.waiting) {
    if (controller_.states_.at(uid)->memory.waiting != waiting)
      tell(uid).waiting = std::move(waiting);
  }
  for (auto& [uid, name] : output.preempt) tell(uid).preempted_by = name;
}

}  // namespace paceline::apply
