// SPDX-License-Identifier: Apache-2.0
// Deletes by force a pod on a node that is gone, or silent for failurePolicy.forceDeleteAfter: no
// kubelet is left to end it gracefully. NodeGuard limits how many nodes count as lost. A pod stays
// while rank 0's launcher says that the gang runs, because then only the kubelet is silent.
#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {
namespace {

constexpr auto kFresh = std::chrono::seconds(30);  // two polls of a running job

/// A launcher stops saying Running soon after a member has fallen silent.
bool launchers_run(const Planner& planner) {
  const Memory& memory = planner.in.memory;
  return memory.summary && memory.summary->phase == "Running" &&
         planner.now() - memory.summary_at < kFresh && memory.summary_at <= planner.now();
}

}  // namespace

bool lost_nodes(Planner& planner, const std::vector<ReplicaState>& replicas) {
  bool deleted = false;
  for (const ReplicaState& state : replicas) {
    if (state.pod == nullptr || state.pod->terminal() || state.pod->node.empty()) continue;
    if (!planner.is_lost(state.pod->node)) continue;
    if (planner.in.node(state.pod->node) != nullptr && launchers_run(planner)) {
      planner.wake_after(kFresh);
      continue;
    }
    planner.set(status::kRestarting, true, "NodeLost",
                "node " + state.pod->node + " of pod " + state.pod->meta.name + " is lost");
    planner.clear(status::kRunning, "NodeLost");
    planner.remove(*state.pod, true);
    deleted = true;
  }
  return deleted;
}

}  // namespace paceline::plan
