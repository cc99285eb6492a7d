// SPDX-License-Identifier: Apache-2.0
// Where the pods of a gang may go after Kueue has admitted it. Pure.
#pragma once

#include <vector>

#include "operator/api/schedulers/kueue.hpp"
#include "operator/plan/placement/placement.hpp"

namespace paceline::plan {

/// Adds the node labels and tolerations that the pods were granted.
void add_grant(Constraints& constraints, const api::PodGrant& grant);

/// The needs, limited to the nodes that were granted. A role with a topology assignment becomes one
/// need for each domain, in the assignment's order, so node ranks follow the topology. `grants` is
/// by role; empty: nothing limits the gang.
std::vector<Need> with_grants(std::vector<Need> needs, const std::vector<api::PodGrant>& grants);

}  // namespace paceline::plan
