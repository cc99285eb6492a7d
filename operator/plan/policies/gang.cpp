// SPDX-License-Identifier: Apache-2.0
// The gang starts as a set. All pods are created pinned and gated; when the last one exists, all
// gates open. The condition Placed records the stage: Creating, then Ungated, then Bound. If the
// set is not bound within gangTimeout, all of it is removed.
#include <algorithm>

#include "common/base/duration.hpp"
#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {

bool create_gang(Planner& planner, std::vector<ReplicaState>& replicas) {
  if (planner.status().is(status::kPlaced, "Creating")) {
    bool complete = true;
    for (ReplicaState& state : replicas) {
      if (state.judgement.outcome == Outcome::kGated) continue;
      complete = false;
      if (state.pod == nullptr) {
        if (!state.predecessor_alive)
          planner.out.creates.push_back(
              {state.replica.node_rank, state.incarnation, state.node, true});
      } else if (!is_live(*state.pod)) {
        // a gated pod that failed never ran, so its name may be used again once it is gone
        planner.remove(*state.pod);
      }
    }
    if (!complete) return true;
    planner.set(status::kPlaced, true, "Ungated",
                std::to_string(replicas.size()) + " pods placed together");
  }
  for (const ReplicaState& state : replicas) {
    if (state.judgement.outcome == Outcome::kGated)
      planner.out.ungates.push_back({state.pod->meta.name, state.pod->meta.uid,
                                     state.pod->gang->other_gates,
                                     state.pod->meta.resource_version});
  }
  if (planner.out.ungates.empty()) return false;
  planner.set(status::kRunning, false, "PodsStarting",
              "0 of " + std::to_string(replicas.size()) + " pods run");
  planner.status().ready = "0/" + std::to_string(replicas.size());
  return true;
}

bool bind_gang(Planner& planner, const std::vector<ReplicaState>& replicas) {
  WallTime newest{};
  const ReplicaState* unbound = nullptr;
  for (const ReplicaState& state : replicas) {
    if (state.pod == nullptr) continue;
    newest = std::max(newest, state.pod->created);
    if (state.pod->node.empty() && is_live(*state.pod) && !state.pod->deleting) unbound = &state;
  }
  if (unbound == nullptr) {
    if (planner.status().is(status::kPlaced, "Ungated")) {
      planner.set(status::kPlaced, true, "Bound",
                  std::to_string(replicas.size()) + " pods placed together");
    }
    return false;
  }
  const auto left = newest + planner.spec.scheduling.gang_timeout - planner.now();
  if (left > std::chrono::nanoseconds(0)) {
    planner.wake_after(left);
    return false;
  }
  std::string message = "pod " + unbound->pod->meta.name + " was not bound within " +
                        format_duration(planner.spec.scheduling.gang_timeout);
  if (!unbound->judgement.message.empty()) message += ": " + unbound->judgement.message;
  planner.unplace("BindTimeout", message, true);
  return true;
}

}  // namespace paceline::plan
