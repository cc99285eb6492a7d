// SPDX-License-Identifier: Apache-2.0
// Matches replicas with their pods. Pods of earlier incarnations are removed. No successor is
// created while one of them may still run.
#include <unordered_map>

#include "operator/plan/policies/policies.hpp"
#include "operator/render/names.hpp"

namespace paceline::plan {

std::vector<ReplicaState> survey(Planner& planner) {
  std::vector<ReplicaState> states;
  const std::vector<std::string> nodes = planner.status().nodes();
  std::unordered_map<std::string, std::size_t> by_name;
  for (const api::Replica& replica : api::replicas_of(planner.spec)) {
    ReplicaState& state = states.emplace_back();
    state.replica = replica;
    state.incarnation = planner.incarnation(replica);
    const auto rank = static_cast<std::size_t>(replica.node_rank);
    state.node = rank < nodes.size() ? nodes[rank] : "";
    state.pod_name = render::pod_name(planner.in.job.job, replica, state.incarnation);
    by_name.emplace(state.pod_name, rank);
  }
  for (const auto& pod : planner.in.pods) {
    const auto it = by_name.find(pod->meta.name);
    if (it != by_name.end()) {
      states[it->second].pod = pod;
      continue;
    }
    // Left over from before a replacement, or from a role that no longer exists. No successor comes
    // before it has ended.
    if (!pod->terminal() || planner.spec.clean_pod_policy != api::CleanPodPolicy::kNone)
      planner.remove(*pod);
    const int rank = pod->gang ? pod->gang->node_rank : -1;
    if (!pod->over() && rank >= 0 && static_cast<std::size_t>(rank) < states.size())
      states[static_cast<std::size_t>(rank)].predecessor_alive = true;
  }
  for (ReplicaState& state : states) {
    state.judgement = judge(state.pod.get());
    if (planner.placed_by_other() && state.pod != nullptr && !state.pod->node.empty())
      state.node = state.pod->node;
  }
  return states;
}

}  // namespace paceline::plan
