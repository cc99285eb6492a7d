// SPDX-License-Identifier: Apache-2.0
// Nodes that the job avoids, because a pod failed there: in its preflight, or by a failure rule
// that says ReplaceNode. The first exclusion is short, since many faults pass by themselves. Each
// further failure there doubles it. A node that then was usable for as long as it was excluded
// counts as new.
#include <algorithm>

#include "common/base/excerpt.hpp"
#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {
namespace {

using std::chrono::minutes;

constexpr minutes kFirst{10};
constexpr minutes kLongest = std::chrono::hours(24);
constexpr std::size_t kNodesOnRecord = 64;
constexpr std::size_t kMessageBytes = 256;

minutes length(int count) { return std::min(kFirst * (1 << std::min(count - 1, 10)), kLongest); }

/// A record from the future means that the clock was set back.
bool is_plausible(const api::ExcludedNode& node, WallTime now) {
  return node.since <= now + kFirst;
}

bool counts(const api::ExcludedNode& node, WallTime now) {
  return is_plausible(node, now) && node.until + (node.until - node.since) > now;
}

}  // namespace

std::vector<std::string> excluded_nodes(const api::JobStatus& status, WallTime now) {
  std::vector<std::string> names;
  for (const api::ExcludedNode& node : status.excluded_nodes) {
    if (is_plausible(node, now) && node.until > now) names.push_back(node.name);
  }
  return names;
}

bool takes_new_pods(const Planner& planner, const std::string& node) {
  const auto view = planner.in.node(node);
  const std::vector<std::string> excluded = excluded_nodes(planner.out.status, planner.in.now);
  return view != nullptr && view->ready && !view->unschedulable &&
         std::ranges::find(excluded, node) == excluded.end();
}

bool exclude_node(Planner& planner, const ReplicaState& state) {
  std::vector<api::ExcludedNode>& record = planner.status().excluded_nodes;
  std::erase_if(record, [&](const auto& node) { return !counts(node, planner.now()); });
  const auto known = std::ranges::find(record, state.node, &api::ExcludedNode::name);
  if (known != record.end() && known->since >= state.pod->created) return false;
  const int count = known == record.end() ? 1 : known->count + 1;
  if (known != record.end()) record.erase(known);
  const WallTime since = std::chrono::floor<std::chrono::seconds>(planner.now());
  record.push_back({state.node, excerpt(state.judgement.message, kMessageBytes), since,
                    since + length(count), count});
  if (record.size() > kNodesOnRecord) record.erase(record.begin());
  return true;
}

}  // namespace paceline::plan
