// SPDX-License-Identifier: Apache-2.0
// Replicas that fail alone: evaluators, and the workers of a job with parameter servers. Replacing
// one is no new attempt of the gang, and the job stays Running. Node rank 0 hosts the rendezvous,
// so its loss concerns all.
//
// So do the workers of a job with spares, while no more of them are away than there are spares. The
// launchers start their ranks anew without the lost ones, and need no operator for that.
#include <algorithm>

#include "operator/api/roles.hpp"
#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {

bool fails_alone(const api::Spec& spec, const api::Replica& replica) {
  const api::Role& role = spec.roles[static_cast<std::size_t>(replica.role)];
  return replica.node_rank != 0 &&
         (role.spares > 0 || contract::fails_alone(role.kind, api::workers_fail_alone(spec),
                                                   /*job_has_scheduler=*/false));
}

bool enough_there(const api::Spec& spec, const std::vector<ReplicaState>& replicas) {
  const bool others = std::ranges::all_of(replicas, [&](const ReplicaState& state) {
    return is_present(state) || fails_alone(spec, state.replica);
  });
  const auto away = std::ranges::count_if(replicas, [&](const ReplicaState& state) {
    const bool has_spares = spec.roles[static_cast<std::size_t>(state.replica.role)].spares > 0;
    return has_spares && !is_present(state);
  });
  return others && away <= spec.failure_policy.spares;
}

void note_stand_ins(Planner& planner, const std::vector<ReplicaState>& replicas) {
  const auto& summary = planner.in.memory.summary;
  if (planner.spec.failure_policy.spares == 0 || !summary || summary->phase != "Running" ||
      !enough_there(planner.spec, replicas) || std::ranges::all_of(replicas, is_present))
    return;
  const std::string told = "a spare has the place of each replica that is away";
  // The gang is complete without the pods that no node has yet.
  if (!planner.status().is(status::kPlaced, "Bound"))
    planner.set(status::kPlaced, true, "Bound", told);
  // Replacements that are on record are still to be created, as when the API server refuses them.
  if (replacing(planner) == status::kRestarting)
    planner.set(status::kReplacing, true, "Replacing",
                planner.status().find(status::kRestarting)->message);
  planner.clear(status::kRestarting, "Running", told);
  planner.set(status::kRunning, true, "PodsRunning", told);
}

bool does_without(const api::Spec& spec, const std::vector<const ReplicaState*>& lost) {
  return static_cast<int>(lost.size()) <= spec.failure_policy.spares &&
         std::ranges::all_of(lost, [&](const ReplicaState* state) {
           return state->replica.node_rank != 0 &&
                  spec.roles[static_cast<std::size_t>(state->replica.role)].spares > 0;
         });
}

void leave_for_later(Planner& planner, const std::vector<const ReplicaState*>& lost, bool charged,
                     std::vector<std::string>& nodes) {
  for (const ReplicaState* state : lost) {
    if (state->pod && !charged) continue;
    nodes[static_cast<std::size_t>(state->replica.node_rank)] = "";
    if (state->pod) planner.remove(*state->pod);
  }
}

bool is_paid_for(const Planner& planner, const ReplicaState& state) {
  return !planner.placed_by_other() && state.node.empty();
}

bool gathers_without(const Planner& planner, const std::vector<ReplicaState>& replicas) {
  std::vector<const ReplicaState*> lost;
  for (const ReplicaState& state : replicas) {
    const Outcome outcome = state.judgement.outcome;
    if (outcome == Outcome::kAbsent || outcome == Outcome::kLost || outcome == Outcome::kKilled)
      lost.push_back(&state);
  }
  return !lost.empty() && planner.out.status.is(status::kPlaced, "Bound") &&
         !planner.out.status.is_true(status::kRunning) && does_without(planner.spec, lost);
}

bool vacate_for_host(Planner& planner, const std::vector<ReplicaState>& replicas) {
  if (planner.spec.failure_policy.spares == 0 || is_present(replicas.front()) ||
      planner.in.memory.no_replacement_node.empty() ||
      !std::ranges::all_of(replicas.begin() + 1, replicas.end(), is_present))
    return false;
  planner.remove(*replicas.back().pod);
  return true;
}

bool trains_on(const Planner& planner, const std::vector<ReplicaState>& replicas) {
  const api::JobStatus& status = planner.out.status;
  const auto& summary = planner.in.memory.summary;
  if (!status.is_true(status::kRunning)) return false;
  if (!enough_there(planner.spec, replicas)) return false;
  const bool restarts =
      status.is_true(status::kRestarting) || (summary && summary->phase == "Restarting");
  if (!restarts) return true;
  // With a spare in each lost replica's place, the restart needs none of the lost ones. If it does
  // not come to an end, the gang waits for them all the same.
  const bool one_is_away = !std::ranges::all_of(replicas, is_present);
  const api::Condition* condition = status.find(status::kRestarting);
  const api::FailurePolicy& policy = planner.spec.failure_policy;
  const bool late = condition != nullptr && condition->status == "True" &&
                    planner.now() - condition->since >=
                        planner.spec.scheduling.gang_timeout + policy.backoff + policy.grace_period;
  return policy.spares > 0 && one_is_away && !late;
}

}  // namespace paceline::plan
