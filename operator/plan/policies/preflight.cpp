// SPDX-License-Identifier: Apache-2.0
// Handles a pod that lacks what the job requires (spec.network.gpuDirect: Required) before the
// first training step. The gang is released, the job avoids the node for a while, and it is queued
// again. No rank has run, so this costs no restart. The number of tries is bounded, because a
// property that every pod lacks (such as a limit on locked memory) is missing on every node. The
// job then fails and names the nodes that it tried. A replica that fails alone is replaced on
// another node, while the others train.
#include <algorithm>
#include <set>

#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {
namespace {

constexpr std::size_t kTries = 5;  // placements within this time
constexpr std::chrono::hours kTriesWithin{1};

/// How often the job was placed in vain lately.
std::size_t tries(const std::vector<api::ExcludedNode>& record, WallTime now) {
  std::set<WallTime> times;
  for (const api::ExcludedNode& node : record) {
    if (node.since > now - kTriesWithin) times.insert(node.since);
  }
  return times.size();
}

}  // namespace

bool preflight(Planner& planner, std::vector<ReplicaState>& replicas) {
  const ReplicaState* unfit = nullptr;
  const bool alone = trains_on(planner, replicas);
  for (ReplicaState& state : replicas) {
    if (state.judgement.outcome != Outcome::kUnfit) continue;
    exclude_node(planner, state);
    if (alone) state.judgement.outcome = Outcome::kLost;
    if (!alone && unfit == nullptr) unfit = &state;
  }
  if (unfit == nullptr) return false;
  planner.set(status::kPreflightPassed, false, unfit->judgement.kind, unfit->judgement.message);
  const std::vector<api::ExcludedNode>& record = planner.status().excluded_nodes;
  if (const std::size_t count = tries(record, planner.now()); count >= kTries) {
    std::string names;
    for (const api::ExcludedNode& node : record) names += (names.empty() ? "" : ", ") + node.name;
    planner.status().culprit = {{"pod", unfit->pod_name}, {"class", unfit->judgement.kind}};
    planner.finish(false, unfit->judgement.kind,
                   unfit->judgement.message + "; placed " + std::to_string(count) +
                       " times, and the preflight failed on " + names);
    return true;
  }
  planner.unplace(unfit->judgement.kind,
                  unfit->judgement.message + "; the job is placed again without that node", false);
  return true;
}

}  // namespace paceline::plan
