// SPDX-License-Identifier: Apache-2.0
// The part of a scheduler's pass that finds room for more pods of running elastic jobs, and what is
// held for pods that are to come. Room that was found stays taken until the job has recorded it, or
// wants it no longer.
#include <algorithm>
#include <utility>

#include "operator/api/elastic.hpp"
#include "operator/apply/scheduler_pass.hpp"
#include "operator/plan/placement/quota.hpp"
#include "operator/plan/queue/scheduler.hpp"

namespace paceline::apply {
namespace {

/// How many blocks of ports the pod has that comes so many places after the first one.
std::int64_t ports_of(const std::vector<plan::Need>& needs, int place) {
  for (const plan::Need& need : needs) {
    if (place < need.count) return need.each.port_blocks;
    place -= need.count;
  }
  return 0;
}

}  // namespace

void Controller::SchedulerPass::charge_growth(const observe::JobView& job, JobState& state,
                                              const std::vector<plan::Need>& needs,
                                              plan::RunningGang& gang) {
  std::optional<plan::Grown>& growth = state.memory.growth;
  if (!growth) return;
  const auto wants = controller_.wants_growth_.find(job.meta.uid);
  const auto usable = [this](const std::string& node) {
    const auto room = room_of_.find(node);
    return room != room_of_.end() && input_.rooms[room->second].node->ready &&
           !input_.rooms[room->second].node->unschedulable;
  };
  if (!job.job.spec.elastic || wants == controller_.wants_growth_.end() ||
      growth->nodes.size() > static_cast<std::size_t>(wants->second) ||
      !std::ranges::all_of(growth->nodes, usable)) {
    growth.reset();
    return;
  }
  const observe::Resources& each = needs[job.job.spec.elastic->role].each;
  for (const std::string& node : growth->nodes) {
    gang.pods.emplace_back(node, each);
    for (observe::QuotaView& quota : input_.quotas[job.meta.ns]) {
      for (auto& [resource, used] : quota.used) used += plan::quota_use(each, resource);
    }
  }
}

std::string Controller::SchedulerPass::stays_small(const observe::JobView& job,
                                                   const std::vector<plan::Need>& needs) const {
  const std::vector<std::string> nodes = job.status.nodes();
  std::size_t rank = 0;
  for (const plan::Need& need : needs) {
    for (int i = 0; i < need.count && rank < nodes.size(); ++i) {
      const auto found = room_of_.find(nodes[rank++]);
      if (found == room_of_.end()) return "a node of the job is gone";
      const plan::Room& room = input_.rooms[found->second];
      const std::string why =
          plan::refusal(need.constraints, *room.node, room.agent_alive ? room.fabric : nullptr);
      if (!why.empty()) return "node " + room.node->meta.name + " takes no new pods: " + why;
    }
  }
  return "";
}

void Controller::SchedulerPass::want_growth(const observe::JobView& job, int pods) {
  JobState& state = *controller_.state_of(job);
  const auto& elastic = job.job.spec.elastic;
  if (!elastic || state.memory.growth || !job.status.placed() || job.status.finished()) return;
  // A running gang is not stopped for a guess of what its pods need.
  if (state.admitted.empty() || state.admitted_spec != job.fingerprint) return;
  std::vector<plan::Need> needs = controller_.needs_now(job, state);
  // all pods of a gang get the runtime in the same way
  if (job.status.slots) needs = plan::with_slots(std::move(needs));
  if (elastic->role >= needs.size()) return;
  if (std::string why = stays_small(job, needs); !why.empty()) {
    state.memory.no_growth = std::move(why);
    state.memory.grow.reset();
    return;
  }
  plan::GrowingGang gang{job.meta.uid,
                         job.meta.ns,
                         0,
                         job.job.metadata.created.value_or(WallTime{}),
                         std::move(needs[elastic->role]),
                         job.job.spec.scheduling.pods_per_node,
                         job.job.spec.required_topology,
                         job.status.nodes(),
                         controller_.way_to_ask(job) != api::Provision::kDisabled};
  gang.need.count = pods;
  gang.held = held_by(job, api::rank_to_add(job.job.spec), {gang.need});
  std::string priority_name;
  if (controller_.priority_of(job, priority_name, gang.priority)) return;
  input_.growing.push_back(std::move(gang));
}

std::vector<plan::Held> Controller::SchedulerPass::held_by(
    const observe::JobView& job, int first, const std::vector<plan::Need>& needs) const {
  std::vector<plan::Held> held;
  const auto mine = placeholders_of_.find(job.meta.uid);
  if (mine == placeholders_of_.end()) return held;
  for (const observe::PodView* pod : mine->second) {
    const int rank = pod->placeholder->rank - first;
    if (rank < 0) continue;
    held.push_back({pod->meta.uid, rank, pod->node, pod->requests});
    // It has no port itself: which of them the pod will have is chosen when that is created.
    held.back().amount.port_blocks = ports_of(needs, rank);
  }
  return held;
}

bool Controller::SchedulerPass::note_grow(plan::Memory& memory, const std::string& uid,
                                          plan::SchedulerOutput& output) {
  std::optional<std::string> needs;
  if (const auto grow = output.grow.find(uid); grow != output.grow.end())
    needs = std::move(grow->second);
  std::set<std::string>& displaced = output.displaced[uid];
  if (memory.grow == needs && memory.displaced == displaced) return false;
  memory.grow = std::move(needs);
  memory.displaced = std::move(displaced);
  return true;
}

void Controller::SchedulerPass::take_growth(plan::SchedulerOutput output) {
  const auto growing_job = [this](const std::string& uid) -> JobState* {
    const auto state = controller_.states_.find(uid);
    return state == controller_.states_.end() || !controller_.wants_growth_.contains(uid)
               ? nullptr
               : state->second.get();
  };
  for (auto& [uid, grown] : output.grown) {
    JobState* state = growing_job(uid);
    if (state == nullptr) continue;
    state->memory.growth = std::move(grown);
    state->memory.no_growth.clear();
    state->memory.grow.reset();
    state->memory.displaced.clear();
    wake_.push_back(state->key);
  }
  for (auto& [uid, why] : output.full) {
    JobState* state = growing_job(uid);
    if (state == nullptr) continue;
    const bool first = state->memory.no_growth.empty();
    if (why.reason == plan::kInternalError && state->memory.no_growth != why.message)
      controller_.note_internal_error(state->key, why.message);
    state->memory.no_growth = std::move(why.message);
    if (note_grow(state->memory, uid, output) || first) wake_.push_back(state->key);
  }
}

}  // namespace paceline::apply
