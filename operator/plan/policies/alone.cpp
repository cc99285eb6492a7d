// SPDX-License-Identifier: Apache-2.0
// Replicas that fail alone: evaluators, and the workers of a job with parameter servers. Replacing
// one is no new attempt of the gang, and the job stays Running. Node rank 0 hosts the rendezvous,
// so its loss concerns all.
#include <algorithm>

#include "operator/api/roles.hpp"
#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {

bool fails_alone(const api::Spec& spec, const api::Replica& replica) {
  const api::RoleKind kind = spec.roles[static_cast<std::size_t>(replica.role)].kind;
  return replica.node_rank != 0 &&
         contract::fails_alone(kind, api::workers_fail_alone(spec), /*job_has_scheduler=*/false);
}

bool trains_on(const Planner& planner, const std::vector<ReplicaState>& replicas) {
  const api::JobStatus& status = planner.out.status;
  const auto& summary = planner.in.memory.summary;
  if (!status.is_true(status::kRunning) || status.is_true(status::kRestarting)) return false;
  if (summary && summary->phase == "Restarting") return false;
  return std::ranges::all_of(replicas, [&](const ReplicaState& state) {
    const Outcome outcome = state.judgement.outcome;
    return outcome == Outcome::kRunning || outcome == Outcome::kSucceeded ||
           fails_alone(planner.spec, state.replica);
  });
}

}  // namespace paceline::plan
