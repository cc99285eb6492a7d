// SPDX-License-Identifier: Apache-2.0
// Deletes by force a pod on a node that is gone, or silent for failurePolicy.forceDeleteAfter: no
// kubelet is left to end it gracefully.
#include <algorithm>

#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {

bool lost_nodes(Planner& planner, const std::vector<ReplicaState>& replicas) {
  bool deleted = false;
  for (const ReplicaState& state : replicas) {
    if (state.pod == nullptr || state.pod->terminal() || state.pod->node.empty()) continue;
    const auto node = planner.in.node(state.pod->node);
    if (node != nullptr && node->ready) continue;
    if (node != nullptr) {
      const auto left =
          node->ready_since + planner.spec.failure_policy.force_delete_after - planner.now();
      if (left > std::chrono::nanoseconds(0)) {
        planner.wake_after(left);
        continue;
      }
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
