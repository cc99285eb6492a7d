// SPDX-License-Identifier: Apache-2.0
// The nodes whose agent is alive, judged by the agents' Leases. What a NodeFabric says about
// GPUDirect is only valid while its agent lives.
//
// Reading is as thread-safe as the Api. It fails as Done: refused if the operator may not read
// Leases, otherwise an error to try again.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.hpp"
#include "operator/apply/actuator.hpp"

namespace paceline::apply {

/// A Lease of an agent, as its agent renewed it last.
struct AgentLease {
  std::string node;
  WallTime renewed{};  // by the clock of the agent's node
  std::chrono::nanoseconds duration{};
};

std::expected<std::vector<AgentLease>, Done> read_agents(kube::Api& api, const std::string& ns);

/// Tells from the Leases which agents are alive. The clocks of nodes may be wrong, so an agent
/// lives if this process has seen its Lease change within twice the Lease's duration. Only at the
/// first look are two clocks compared. Not thread-safe.
class AgentTracker {
 public:
  /// The nodes whose agents live. `wall` and `steady` are now.
  std::set<std::string> living(const std::vector<AgentLease>& leases, WallTime wall,
                               SteadyTime steady);

 private:
  struct Seen {
    WallTime renewed{};
    std::optional<SteadyTime> changed;  // nullopt: it was expired at the first look
  };
  std::map<std::string, Seen> seen_;  // by node
};

}  // namespace paceline::apply
