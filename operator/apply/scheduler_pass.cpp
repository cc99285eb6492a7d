// SPDX-License-Identifier: Apache-2.0
#include "operator/apply/scheduler_pass.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "operator/apply/kueue/topologies.hpp"
#include "operator/apply/kueue/workload.hpp"
#include "operator/plan/placement/quota.hpp"
#include "operator/plan/queue/scheduler.hpp"
#include "operator/status/phase.hpp"

namespace paceline::apply {

Snapshot::Snapshot(const Stores& stores)
    : pods_version(stores.pods.resource_version()),
      nodes(stores.nodes.list()),
      pods(stores.pods.list()),
      quotas(stores.quotas.list()),
      jobs(stores.jobs.list()),
      fabrics(stores.fabrics.list()) {
  std::sort(nodes.begin(), nodes.end(),
            [](const auto& a, const auto& b) { return a->meta.name < b->meta.name; });
  domains = domains_by_topologies(stores, nodes);
}

Controller::SchedulerPass::SchedulerPass(Controller& controller, const Snapshot& snapshot)
    : controller_(controller) {
  input_.now = controller_.parts_.clock.wall();
  for (const auto& node : snapshot.nodes) {
    room_of_.emplace(node->meta.name, input_.rooms.size());
    input_.rooms.push_back({node.get(), node->allocatable});
  }
  for (std::size_t i = 0; i < snapshot.domains.size(); ++i)
    input_.rooms[i].domains = &snapshot.domains[i];
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

template <typename Work>
void Controller::SchedulerPass::contain(const observe::JobView& job, Work work) {
  if (failed_.contains(job.meta.uid)) return;
  try {
    work(job);
  } catch (const std::exception& error) {
    JobState& state = *controller_.state_of(job);
    controller_.note_internal_error(state.key, error.what());
    state.memory.waiting = plan::Waiting{plan::kInternalError, error.what()};
    wake_.push_back(state.key);
    failed_.insert(job.meta.uid);
  }
}

std::uint64_t Controller::SchedulerPass::orphans_version() const {
  std::uint64_t newest = controller_.orphans_version_;
  for (const auto& [uid, state] : controller_.states_) {
    const auto job = jobs_.find(uid);
    // The record of a job that is being deleted no longer holds the room of pods unseen so far.
    if (job == jobs_.end() || !is_tended(*job->second))
      newest = std::max(newest, state->pods_version);
  }
  return newest;
}

std::vector<std::string> Controller::SchedulerPass::run(std::unique_lock<std::mutex>& lock) {
  for (const auto& [uid, job] : jobs_)
    contain(*job, [this](const observe::JobView& view) { charge(view); });
  charge_orphans();
  seat_replacements();
  for (const std::string& uid : controller_.queued_) {
    if (const auto job = jobs_.find(uid); job != jobs_.end() && job->second->errors.empty())
      contain(*job->second, [this](const observe::JobView& view) { queue(view); });
  }
  for (const auto& [uid, pods] : controller_.wants_growth_) {
    if (const auto job = jobs_.find(uid); job != jobs_.end() && job->second->errors.empty())
      contain(*job->second,
              [this, more = pods](const observe::JobView& view) { want_growth(view, more); });
  }
  if (!(input_.queued.empty() && input_.growing.empty()) && !uncertain_) {
    lock.unlock();
    plan::PassNotes notes;
    plan::SchedulerOutput output = plan::schedule(std::move(input_), &notes);
    lock.lock();
    controller_.order_ = std::move(notes.order);
    controller_.passed_at_ = controller_.parts_.clock.wall();
    take_answers(std::move(output));
  }
  return std::move(wake_);
}

void Controller::SchedulerPass::take(const std::string& node, const observe::Resources& amount) {
  if (const auto it = room_of_.find(node); it != room_of_.end())
    input_.rooms[it->second].free.subtract(amount);
}

void Controller::SchedulerPass::read_pods(const Snapshot& snapshot) {
  for (const auto& pod : snapshot.pods) {
    if (pod->over()) continue;
    if (pod->placeholder) {
      read_placeholder(*pod);
    } else if (pod->place().empty()) {
      if (pod->gang) unplaced_of_[pod->gang->job_uid].insert(pod->gang->node_rank);
    } else if (pod->gang) {
      pods_of_[pod->gang->job_uid].push_back(pod.get());
    } else {
      take(pod->place(), pod->requests);
    }
  }
}

void Controller::SchedulerPass::read_placeholder(const observe::PodView& pod) {
  // It goes before the gang's pods come, so it uses neither room nor quota that they need.
  for (observe::QuotaView& quota : input_.quotas[pod.meta.ns]) {
    for (auto& [resource, used] : quota.used)
      used = std::max<std::int64_t>(0, used - plan::quota_use(pod.requests, resource));
  }
  if (!pod.node.empty() && !pod.deleting)
    placeholders_of_[pod.placeholder->job_uid].push_back(&pod);
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
  if (!job.status.pod_group.empty()) return charge_by_other(job, state);
  plan::RunningGang gang{job.meta.uid,
                         job.meta.name,
                         job.errors.empty() ? api::queue_of(job.job) : "",
                         0,
                         job.status.start_time.value_or(WallTime{}),
                         false,
                         {}};
  std::string priority_name;
  controller_.priority_of(job, priority_name, gang.priority);
  const std::vector<std::string> slots = slots_of(job, state);
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
    charge_growth(job, state, *needs, gang);
  }
  const auto pods = fill_slots(job.meta.uid, slots, each.size(), gang);
  const auto wants = controller_.wants_node_.find(job.meta.uid);
  for (std::size_t rank = 0; rank < std::min(each.size(), slots.size()); ++rank) {
    if (pods[rank] != nullptr) {
      gang.pods.emplace_back(slots[rank], pods[rank]->requests);
      continue;
    }
    // It has lost its node; `seat` counts the next one.
    if (wants != controller_.wants_node_.end() && wants->second.contains(static_cast<int>(rank)))
      continue;
    // An earlier operator placed the gang: what its pods need is asked for first.
    if (!state.memory.admission && !state.asked_for_needs) {
      uncertain_ = state.needs_missed = true;
      wake_.push_back(state.key);
    }
    gang.pods.emplace_back(slots[rank], *each[rank]);
    // Placed but not created yet: the quota does not count it.
    for (observe::QuotaView& quota : input_.quotas[job.meta.ns]) {
      for (auto& [resource, used] : quota.used) used += plan::quota_use(*each[rank], resource);
    }
  }
  gang.stopping = slots.empty() || !state.memory.preempted_by.empty();
  for (const auto& [node, amount] : gang.pods) take(node, amount);
  if (!gang.pods.empty()) input_.running.push_back(std::move(gang));
}

std::vector<std::string> Controller::SchedulerPass::slots_of(const observe::JobView& job,
                                                             const JobState& state) const {
  if (state.memory.admission) return *state.memory.admission;
  if (!job.status.placed() || job.status.finished() || !is_tended(job)) return {};
  std::vector<std::string> slots = job.status.nodes();
  for (const auto& [rank, node] : state.memory.replacement_nodes) {
    if (static_cast<std::size_t>(rank) < slots.size()) slots[static_cast<std::size_t>(rank)] = node;
  }
  return slots;
}

std::vector<const observe::PodView*> Controller::SchedulerPass::fill_slots(
    const std::string& uid, const std::vector<std::string>& slots, std::size_t ranks,
    plan::RunningGang& gang) const {
  std::vector<const observe::PodView*> found(ranks, nullptr);
  const auto mine = pods_of_.find(uid);
  if (mine == pods_of_.end()) return found;
  for (const observe::PodView* pod : mine->second) {
    const auto rank = static_cast<std::size_t>(std::max(0, pod->gang->node_rank));
    if (rank < ranks && rank < slots.size() && slots[rank] == pod->place() &&
        found[rank] == nullptr) {
      found[rank] = pod;
    } else {
      gang.pods.emplace_back(pod->place(), pod->requests);
    }
  }
  return found;
}

void Controller::SchedulerPass::charge_orphans() {
  for (const auto& [uid, pods] : pods_of_) {
    if (jobs_.contains(uid) && !failed_.contains(uid)) continue;
    plan::RunningGang gang{uid, pods.front()->gang->job_name, "", 0, {}, true, {}};
    for (const observe::PodView* pod : pods) {
      gang.pods.emplace_back(pod->place(), pod->requests);
      take(pod->place(), pod->requests);
    }
    input_.running.push_back(std::move(gang));
  }
}

void Controller::SchedulerPass::seat_replacements() {
  for (const auto& [uid, ranks] : controller_.wants_node_) {
    const auto job = jobs_.find(uid);
    if (job == jobs_.end() || !job->second->errors.empty()) continue;
    contain(*job->second, [&](const observe::JobView& view) {
      JobState& state = *controller_.state_of(view);
      for (const int rank : ranks) seat(view, state, rank);
      state.memory.replacement_where = describe(slots_of(view, state));
    });
  }
}

const plan::Topology& Controller::SchedulerPass::topology() {
  if (!topology_) topology_.emplace(input_.rooms);
  return *topology_;
}

std::string Controller::SchedulerPass::describe(const std::vector<std::string>& nodes) {
  std::vector<std::size_t> rooms;
  for (const std::string& node : nodes) {
    if (const auto room = room_of_.find(node); room != room_of_.end())
      rooms.push_back(room->second);
  }
  return rooms.empty() ? "" : topology().describe(rooms);
}

void Controller::SchedulerPass::seat(const observe::JobView& job, JobState& state, int rank) {
  std::vector<plan::Need> needs = controller_.needs_now(job, state);
  // all pods of a gang get the runtime in the same way
  if (job.status.slots) needs = plan::with_slots(std::move(needs));
  int first = 0;
  auto need = needs.begin();
  while (need != needs.end() && rank >= first + need->count) first += (need++)->count;
  std::vector<std::string> slots = slots_of(job, state);
  if (need == needs.end() || static_cast<std::size_t>(rank) >= slots.size()) return;
  plan::QueuedGang single;
  single.needs = {*need};
  single.needs[0].count = 1;
  // Its old node, or the one that an earlier pass found and that may no longer do.
  single.needs[0].prefer = std::exchange(slots[static_cast<std::size_t>(rank)], "");
  const auto tell = [&](std::string why) {
    const bool news = state.memory.homeless.insert(rank).second;
    const bool had_one = state.memory.replacement_nodes.erase(rank) > 0;
    if (!news && !had_one && state.memory.no_replacement_node == why) return;
    state.memory.no_replacement_node = std::move(why);
    wake_.push_back(state.key);
  };
  if (std::string full = plan::quota_refusal(single, input_.quotas[job.meta.ns]); !full.empty())
    return tell(std::move(full));
  plan::Allowances allowances;
  plan::Ask ask{single.needs,
                job.job.spec.scheduling.pods_per_node,
                job.job.spec.required_topology,
                {slots.begin(), slots.end()}};
  const int end = std::min(first + need->count, static_cast<int>(slots.size()));
  for (const int next : {rank - 1, rank + 1}) {
    if (next >= first && next < end) ask.neighbours.insert(slots[static_cast<std::size_t>(next)]);
  }
  auto chosen = plan::place(ask, input_.rooms, topology(), allowances);
  if (!chosen) return tell(std::move(chosen.error()));
  plan::reserve_quota(single, input_.quotas[job.meta.ns]);
  state.memory.homeless.erase(rank);
  const std::string& node = input_.rooms[chosen->rooms.front()].node->meta.name;
  if (std::exchange(state.memory.replacement_nodes[rank], node) != node) wake_.push_back(state.key);
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
                        job.job.spec.scheduling.pods_per_node,
                        job.status.is("Placed", "RuntimeChanged"),
                        job.job.spec.required_topology,
                        controller_.way_to_ask(job) != api::Provision::kDisabled};
  gang.by_other = api::backend_of(job.job.spec) != api::Backend::kNative;
  gang.held = held_by(job, 0, gang.needs);
  std::string priority_name;
  if (auto refused = controller_.priority_of(job, priority_name, gang.priority)) {
    if (state.memory.waiting != refused) wake_.push_back(state.key);
    state.memory.waiting = std::move(refused);
    state.memory.grow.reset();
    return;
  }
  // Kueue decides how many pods a job of its queues has.
  const auto& elastic = job.job.spec.elastic;
  if (elastic && look_at_kueue(controller_.parts_.stores, job).queue.empty())
    gang.elastic = {elastic->role, elastic->min_replicas};
  if (const auto& level = job.job.spec.preferred_topology; level && !gang.by_other) {
    const bool waits = job.status.is_true(status::kCouldRun);
    // It may lie in the future if the clock was set back.
    const WallTime since =
        waits ? std::min(job.status.find(status::kCouldRun)->since, input_.now) : input_.now;
    const WallTime until = since + job.job.spec.preferred_timeout;
    if (until > input_.now) gang.preferred = {*level, until, waits};
  }
  input_.queued.push_back(std::move(gang));
}

void Controller::SchedulerPass::take_answers(plan::SchedulerOutput output) {
  // Meanwhile a job may have been deleted, or may no longer wait.
  const auto waiting_job = [this](const std::string& uid) -> JobState* {
    const auto state = controller_.states_.find(uid);
    return state == controller_.states_.end() || !controller_.queued_.contains(uid)
               ? nullptr
               : state->second.get();
  };
  for (auto& [uid, nodes] : output.placements) {
    JobState* state = waiting_job(uid);
    if (state == nullptr) continue;
    state->memory.admission = std::move(nodes);
    state->memory.admission_where = std::move(output.where[uid]);
    state->memory.admission_slots = output.slotted.contains(uid);
    state->memory.admission_smaller = std::move(output.smaller[uid]);
    state->memory.waiting.reset();
    controller_.queued_.erase(uid);
    wake_.push_back(state->key);
  }
  for (auto& [uid, waiting] : output.waiting) {
    JobState* state = waiting_job(uid);
    if (state == nullptr) continue;
    plan::Memory& memory = state->memory;
    const bool news = note_grow(memory, uid, output);
    if (!news && memory.waiting == waiting) continue;
    if (waiting.reason == plan::kInternalError)
      controller_.note_internal_error(state->key, waiting.message);
    memory.waiting = std::move(waiting);
    wake_.push_back(state->key);
  }
  for (auto& [uid, name] : output.preempt) {
    const auto state = controller_.states_.find(uid);
    const auto seen = jobs_.find(uid);
    if (state == controller_.states_.end() || seen == jobs_.end()) continue;
    // Meanwhile it may have lost the placement that was to make room, and have another one. One
    // that was not on record yet makes room when it is.
    const api::JobStatus& then = seen->second->status;
    const api::JobStatus& now = controller_.newest(seen->second, *state->second)->status;
    if (then.placed() && (!now.placed() || now.start_time != then.start_time)) continue;
    state->second->memory.preempted_by = name;
    wake_.push_back(state->second->key);
  }
  take_growth(std::move(output));
}

}  // namespace paceline::apply
