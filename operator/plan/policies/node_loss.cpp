// SPDX-License-Identifier: Apache-2.0
// Deletes by force a pod on a node that is gone, or silent for failurePolicy.forceDeleteAfter: no
// kubelet is left to end it gracefully. NodeGuard limits how many nodes count as lost. A pod stays
// while rank 0's launcher says that the gang runs, because then only the kubelet is silent.
#include <algorithm>

#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {
namespace {

constexpr auto kFresh = std::chrono::seconds(30);  // two polls of a running job

bool is_there(const status::Report& summary, int node_rank) {
  if (!summary.missing) return summary.complete;
  return std::ranges::find(*summary.missing, node_rank) == summary.missing->end();
}

/// A launcher stops saying Running soon after a member has fallen silent. If the member fails
/// alone, the launcher goes on, and says which members are not there.
bool launcher_runs(const Planner& planner, const api::Replica& replica, bool alone) {
  const Memory& memory = planner.in.memory;
  return memory.summary && memory.summary->phase == "Running" &&
         (!alone || is_there(*memory.summary, replica.node_rank)) &&
         planner.now() - memory.summary_at < kFresh && memory.summary_at <= planner.now();
}

}  // namespace

bool lost_nodes(Planner& planner, const std::vector<ReplicaState>& replicas) {
  bool deleted = false;
  for (const ReplicaState& state : replicas) {
    if (state.pod == nullptr || state.pod->terminal() || state.pod->node.empty()) continue;
    if (!planner.is_lost(state.pod->node)) continue;
    const bool alone = fails_alone(planner.spec, state.replica) && trains_on(planner, replicas);
    if (planner.in.node(state.pod->node) != nullptr &&
        launcher_runs(planner, state.replica, alone)) {
      planner.wake_after(kFresh);
      continue;
    }
    planner.set(alone ? status::kReplacing : status::kRestarting, true, "NodeLost",
                "node " + state.pod->node + " of pod " + state.pod->meta.name + " is lost");
    if (!alone) planner.clear(status::kRunning, "NodeLost");
    planner.remove(*state.pod, true);
    deleted = true;
  }
  return deleted;
}

}  // namespace paceline::plan
