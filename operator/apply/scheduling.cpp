// SPDX-License-Identifier: Apache-2.0
// The scheduler's pass of the Controller: gathers what is free, asks plan::schedule, and leaves the answers in the jobs' memories. A place that was given
// away counts as taken from that moment on, whether its pods exist yet or not.
#include <algorithm>
#include <unordered_map>

#include "operator/apply/controller.hpp"
#include "operator/apply/job_state.hpp"
#include "operator/render/pod.hpp"

namespace paceline::apply {
namespace {

struct Ground {
  std::vector<std::shared_ptr<const observe::NodeView>> nodes;  // keeps the views alive
  std::vector<plan::Room> rooms;
  std::unordered_map<std::string, std::size_t> room_of;

  void take(const std::string& node, const observe::Resources& amount) {
    if (const auto it = room_of.find(node); it != room_of.end()) rooms[it->second].free.subtract(amount);
  }
};

Ground ground_of(const Stores& stores) {
  Ground ground;
  ground.nodes = stores.nodes.list();
  std::sort(ground.nodes.begin(), ground.nodes.end(),
            [](const auto& a, const auto& b) { return a->meta.name < b->meta.name; });
  for (const auto& node : ground.nodes) {
    ground.room_of.emplace(node->meta.name, ground.rooms.size());
    ground.rooms.push_back({node.get(), node->allocatable});
  }
  return ground;
}

}  // namespace

const std::vector<plan::Need>& Controller::needs_of(const observe::JobView& job, JobState& state) const {
  if (state.needs_generation == job.job.metadata.generation) return state.needs;
  state.needs.clear();
  for (const api::Replica& replica : api::replicas_of(job.job.spec)) {
    if (replica.index != 0) continue;
    const api::Role& role = job.job.spec.roles[static_cast<std::size_t>(replica.role)];
    plan::Need& need = state.needs.emplace_back();
    need.role = role.name;
    need.count = role.replicas;
    const nlohmann::json pod = render::render_pod(job.job, replica, {});
    if (auto view = observe::project_pod(pod.dump())) need.each = std::move(view->requests);
    need.constraints = plan::read_constraints(pod["spec"]);
  }
  state.needs_generation = job.job.metadata.generation;
  return state.needs;
}

std::optional<plan::Waiting> Controller::priority_of(const observe::JobView& job, std::string& name, int& value) const {
  name = job.job.spec.scheduling.priority_class_name;
  const bool chosen = !name.empty();
  if (!chosen) name = actuator_.settings().default_priority_class;
  value = 0;
  if (name.empty()) return std::nullopt;
  const auto priority = parts_.stores.priorities.get(name);
  if (!priority) {
    if (!chosen) {
      name.clear();
      return std::nullopt;
    }
    return plan::Waiting{
        "PriorityClassNotFound",
        "PriorityClass " + name +
            " does not exist; create it with preemptionPolicy: Never, or change spec.scheduling.priorityClassName"};
  }
  if (priority->preempts) {
    return plan::Waiting{
        "PriorityClassPreempts",
        "PriorityClass " + name +
            " lets the scheduler preempt single pods of other gangs; use one with preemptionPolicy: Never "
            "(Paceline preempts whole gangs itself)"};
  }
  value = priority->value;
  return std::nullopt;
}

void Controller::schedule() {
  const std::lock_guard one_pass(schedule_mutex_);
  Ground ground = ground_of(parts_.stores);
  const auto pods = parts_.stores.pods.list();
  const auto quotas = parts_.stores.quotas.list();
  const auto cached_jobs = parts_.stores.jobs.list();
  std::vector<std::string> wake;
  const std::lock_guard lock(mutex_);
  ++counters_.scheduler_passes;

  plan::SchedulerInput input;
  input.now = parts_.clock.wall();
  for (const auto& quota : quotas) input.quotas[quota->meta.ns].push_back(*quota);

  std::unordered_map<std::string, std::vector<const observe::PodView*>> pods_of;
  for (const auto& pod : pods) {
    if (pod->terminal() || pod->place().empty()) continue;
    if (pod->gang) {
      pods_of[pod->gang->job_uid].push_back(pod.get());
    } else {
      ground.take(pod->place(), pod->requests);
    }
  }
  std::map<std::string, JobPtr> jobs;  // ordered by UID: the same input gives the same pass
  for (const auto& cached : cached_jobs) {
    const auto state = states_.find(cached->meta.uid);
    jobs.emplace(cached->meta.uid, state == states_.end() ? JobPtr(cached) : newest(cached, *state->second));
  }
  for (const auto& [uid, job] : jobs) {
    const auto state = state_of(*job);
    plan::RunningGang gang{uid,
                           job->meta.name,
                           job->errors.empty() ? api::queue_of(job->job) : "",
                           0,
                           job->status.start_time.value_or(WallTime{}),
                           false,
                           {}};
    std::string priority_name;
    priority_of(*job, priority_name, gang.priority);
    std::vector<std::string> slots;
    if (state->memory.admission) {
      slots = *state->memory.admission;
    } else if (job->status.placed() && !job->status.finished()) {
      slots = job->status.nodes();
    }
    std::vector<const observe::Resources*> each;
    if (!slots.empty() && job->errors.empty()) {
      for (const plan::Need& need : needs_of(*job, *state))
        each.insert(each.end(), static_cast<std::size_t>(need.count), &need.each);
    }
    const auto mine = pods_of.find(uid);
    std::vector<bool> exists(each.size(), false);
    if (mine != pods_of.end()) {
      for (const observe::PodView* pod : mine->second) {
        const auto rank = static_cast<std::size_t>(std::max(0, pod->gang->node_rank));
        const bool slotted = rank < each.size() && rank < slots.size() && slots[rank] == pod->place() && !exists[rank];
        if (slotted) {
          exists[rank] = true;
        } else {
          gang.pods.emplace_back(pod->place(), pod->requests);
        }
      }
    }
    for (std::size_t rank = 0; rank < std::min(each.size(), slots.size()); ++rank) {
      gang.pods.emplace_back(slots[rank], *each[rank]);
      if (exists[rank]) continue;
      // Given away, not created yet: quota does not know of it.
      for (observe::QuotaView& quota : input.quotas[job->meta.ns]) {
        for (auto& [resource, used] : quota.used) used += plan::quota_use(*each[rank], resource);
      }
    }
    gang.stopping = slots.empty() || !state->memory.preempted_by.empty();
    for (const auto& [node, amount] : gang.pods) ground.take(node, amount);
    if (!gang.pods.empty()) input.running.push_back(std::move(gang));
  }

  // Single replicas of gangs that run come before gangs that wait.
  for (auto& [uid, ranks] : wants_node_) {
    const auto job = jobs.find(uid);
    if (job == jobs.end() || !job->second->errors.empty()) continue;
    JobState& state = *state_of(*job->second);
    const std::vector<std::string> slots = job->second->status.nodes();
    const auto& needs = needs_of(*job->second, state);
    for (auto& [rank, unused] : ranks) {
      int first = 0;
      for (const plan::Need& need : needs) {
        if (rank < first + need.count) {
          plan::Need single = need;
          single.count = 1;
          std::vector<plan::Room> rooms = ground.rooms;
          if (job->second->job.spec.scheduling.exclusive_nodes) {
            for (plan::Room& room : rooms) {
              if (std::find(slots.begin(), slots.end(), room.node->meta.name) != slots.end()) room.free = {};
            }
          }
          if (const auto chosen = plan::place({single}, false, rooms)) {
            state.memory.replacement_nodes[rank] = rooms[chosen->front()].node->meta.name;
            ground.take(rooms[chosen->front()].node->meta.name, single.each);
            wake.push_back(state.key);
          }
          break;
        }
        first += need.count;
      }
    }
  }

  for (const std::string& uid : queued_) {
    const auto job = jobs.find(uid);
    if (job == jobs.end() || !job->second->errors.empty()) continue;
    JobState& state = *state_of(*job->second);
    if (state.memory.admission || job->second->status.placed() || job->second->status.finished()) continue;
    plan::QueuedGang gang{uid,
                          job->second->meta.name,
                          job->second->meta.ns,
                          api::queue_of(job->second->job),
                          0,
                          job->second->job.metadata.created.value_or(WallTime{}),
                          needs_of(*job->second, state),
                          job->second->job.spec.scheduling.exclusive_nodes};
    std::string priority_name;
    if (auto refused = priority_of(*job->second, priority_name, gang.priority)) {
      if (state.memory.waiting != refused) wake.push_back(state.key);
      state.memory.waiting = std::move(refused);
      continue;
    }
    input.queued.push_back(std::move(gang));
  }
  if (!input.queued.empty()) {
    input.rooms = ground.rooms;
    plan::SchedulerOutput output = plan::schedule(std::move(input));
    for (auto& [uid, nodes] : output.placements) {
      const auto state = states_.at(uid);
      state->memory.admission = std::move(nodes);
      state->memory.waiting.reset();
      queued_.erase(uid);
      wake.push_back(state->key);
    }
    for (auto& [uid, waiting] : output.waiting) {
      const auto state = states_.at(uid);
      if (state->memory.waiting == waiting) continue;
      state->memory.waiting = std::move(waiting);
      wake.push_back(state->key);
    }
    for (auto& [uid, name] : output.preempt) {
      const auto state = states_.at(uid);
      state->memory.preempted_by = name;
      wake.push_back(state->key);
    }
  }
  for (const std::string& key : wake) parts_.enqueue(key);
}

}  // namespace paceline::apply
