// SPDX-License-Identifier: Apache-2.0
// Which nodes have an agent that is alive, by the agents' Leases: what a NodeFabric says of
// GPUDirect is worth no more than the agent behind it.
//
// Thread-safe as the Api is. Fails as Done: refused (the operator may not read them), or an error
// that another try may mend.
#pragma once

#include <set>
#include <string>

#include "operator/apply/actuator.hpp"

namespace paceline::apply {

/// Names of the nodes whose agent renewed its Lease less than twice the Lease's duration ago. Both
/// clocks count: an agent whose node's clock is behind by more than one duration (40 s) is taken
/// for silent.
std::expected<std::set<std::string>, Done> living_agents(kube::Api& api, const std::string& ns,
                                                         WallTime now);

}  // namespace paceline::apply
