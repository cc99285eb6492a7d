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

constexpr std::size_t kTries = 5;  // placements within the time of one exclusion
constexpr std::size_t kNodesOnRecord = 64;
constexpr std::size_t kMessageBytes = 256;

bool lasts(const api::ExcludedNode& node, WallTime now) {
  // A longer recorded wait means that the clock was set back.
  return node.since + kExclusion > now && node.since <= now + kExclusion;
}

std::string cut(const std::string& message) {
  std::size_t end = std::min(message.size(), kMessageBytes);
  while (end < message.size() && end > 0 &&
         (static_cast<unsigned char>(message[end]) & 0xC0U) == 0x80U)
    --end;
  return message.substr(0, end);
}

}  // namespace

std::vector<std::string> excluded_nodes(const api::JobStatus& status, WallTime now) {
  std::vector<std::string> names;
  for (const api::ExcludedNode& node : status.excluded_nodes) {
    if (lasts(node, now)) names.push_back(node.name);
  }
  return names;
}

bool preflight(Planner& planner, std::vector<ReplicaState>& replicas) {
  const ReplicaState* unfit = nullptr;
  std::vector<api::ExcludedNode>& record = planner.status().excluded_nodes;
  const WallTime since = std::chrono::floor<std::chrono::seconds>(planner.now());
  const bool alone = trains_on(planner, replicas);
  for (ReplicaState& state : replicas) {
    if (state.judgement.outcome != Outcome::kUnfit) continue;
    std::erase_if(record, [&](const auto& node) { return !lasts(node, planner.now()); });
    const auto known = std::ranges::find(record, state.node, &api::ExcludedNode::name);
    // The pod of a replica that fails alone is seen again until it is replaced.
    if (alone) state.judgement.outcome = Outcome::kLost;
    if (alone && known != record.end() && known->since >= state.pod->created) continue;
    if (!alone && unfit == nullptr) unfit = &state;
    if (known != record.end()) record.erase(known);
    record.push_back({state.node, cut(state.judgement.message), since});
  }
  if (record.size() > kNodesOnRecord)
    record.erase(record.begin(), record.end() - static_cast<std::ptrdiff_t>(kNodesOnRecord));
  if (unfit == nullptr) return false;
  planner.set(status::kPreflightPassed, false, unfit->judgement.kind, unfit->judgement.message);
  std::set<WallTime> tries;
  for (const api::ExcludedNode& node : record) tries.insert(node.since);
  if (tries.size() >= kTries) {
    std::string names;
    for (const api::ExcludedNode& node : record) names += (names.empty() ? "" : ", ") + node.name;
    planner.status().culprit = {{"pod", unfit->pod_name}, {"class", unfit->judgement.kind}};
    planner.finish(false, unfit->judgement.kind,
                   unfit->judgement.message + "; placed " + std::to_string(tries.size()) +
                       " times, and the preflight failed on " + names);
    return true;
  }
  planner.unplace(unfit->judgement.kind,
                  unfit->judgement.message + "; the job is placed again without that node", false);
  return true;
}

}  // namespace paceline::plan
