// SPDX-License-Identifier: Apache-2.0
#include "operator/apply/agents.hpp"

#include <algorithm>

#include "common/base/timestamp.hpp"
#include "common/contract/labels.hpp"
#include "common/kube/api/json_reader.hpp"

namespace paceline::apply {
namespace {

constexpr std::int64_t kPage = 500;
constexpr std::int64_t kLongestLease = 3600;  // seconds; bounds a wrong value in a Lease

Done refused(Error error, const std::string& ns) {
  Done done;
  if (error.code == Code::kForbidden) {
    done.refusal = plan::Waiting{
        "AgentsUnreadable",
        "spec.network.gpuDirect is Required, and the operator may not list the agents' Leases in "
        "namespace " +
            ns + " (" + error.message +
            "); install the chart's roles, or start the operator with the right --agent-namespace"};
  } else {
    done.error = std::move(error);
  }
  return done;
}

}  // namespace

std::expected<std::vector<AgentLease>, Done> read_agents(kube::Api& api, const std::string& ns) {
  std::vector<AgentLease> agents;
  kube::ListOptions options;
  options.limit = kPage;
  do {
    const auto page = api.list(kube::kLeases, ns, options);
    if (!page) return std::unexpected(refused(page.error(), ns));
    const auto leases = kube::parse(*page);
    if (!leases) return std::unexpected(refused(leases.error(), ns));
    for (const kube::Json lease : kube::items(kube::at(*leases, "items"))) {
      std::string_view name = kube::text(kube::at(lease, "metadata", "name"));
      const auto renewed = parse_time(kube::text(kube::at(lease, "spec", "renewTime")));
      if (!name.starts_with(contract::kAgentLeasePrefix) || !renewed) continue;
      name.remove_prefix(contract::kAgentLeasePrefix.size());
      const std::int64_t duration = std::clamp<std::int64_t>(
          kube::number(kube::at(lease, "spec", "leaseDurationSeconds")), 1, kLongestLease);
      agents.push_back({std::string(name), *renewed, std::chrono::seconds(duration)});
    }
    options.continue_token = kube::text(kube::at(*leases, "metadata", "continue"));
  } while (!options.continue_token.empty());
  return agents;
}

std::set<std::string> AgentTracker::living(const std::vector<AgentLease>& leases, WallTime wall,
                                           SteadyTime steady) {
  std::set<std::string> nodes;
  std::map<std::string, Seen> now;
  for (const AgentLease& lease : leases) {
    const auto before = seen_.find(lease.node);
    const bool expired = wall - lease.renewed >= 2 * lease.duration;
    Seen seen{lease.renewed, expired ? std::nullopt : std::optional(steady)};
    if (before != seen_.end())
      seen.changed =
          before->second.renewed == lease.renewed ? before->second.changed : std::optional(steady);
    if (seen.changed && steady - *seen.changed < 2 * lease.duration) nodes.insert(lease.node);
    now.emplace(lease.node, seen);
  }
  seen_ = std::move(now);
  return nodes;
}

}  // namespace paceline::apply
