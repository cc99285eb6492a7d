// SPDX-License-Identifier: Apache-2.0
// The nodes whose agent is alive, judged by the agents' Leases. What a NodeFabric says about
// GPUDirect is only valid while its agent lives.
//
// As thread-safe as the Api. Fails as Done: refused if the operator may not read Leases, otherwise
// an error to try again.
#pragma once

#include <set>
#include <string>

#include "operator/apply/actuator.hpp"

namespace paceline::apply {

/// The names of nodes whose agent renewed its Lease less than twice the Lease's duration ago. This
/// compares two clocks: an agent whose node's clock lags by more than one duration (40 s) counts as
/// dead.
std::expected<std::set<std::string>, Done> living_agents(kube::Api& api, const std::string& ns,
                                                         WallTime now);

}  // namespace paceline::apply
