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

/// The nodes where the preflight failed lately, since it last passed. Nodes on record from before
/// that may be there by a failure rule.
std::vector<api::ExcludedNode> tried_in_vain(const Planner& planner) {
  const WallTime fails_since = planner.out.status.find(status::kPreflightPassed)->since;
  std::vector<api::ExcludedNode> nodes = planner.out.status.excluded_nodes;
  std::erase_if(nodes, [&](const api::ExcludedNode& node) {
    return node.since < fails_since || node.since <= planner.in.now - kTriesWithin;
  });
  return nodes;
}

/// How many placements these nodes are of.
std::size_t placements(const std::vector<api::ExcludedNode>& nodes) {
  std::set<WallTime> times;
  for (const api::ExcludedNode& node : nodes) times.insert(node.since);
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
  const std::vector<api::ExcludedNode> tried = tried_in_vain(planner);
  if (const std::size_t count = placements(tried); count >= kTries) {
    std::string names;
    for (const api::ExcludedNode& node : tried) names += (names.empty() ? "" : ", ") + node.name;
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
