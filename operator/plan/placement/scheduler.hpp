// SPDX-License-Identifier: Apache-2.0
// Decides which queued gangs start now and where, why the others wait, and which running gangs must
// make room. One pass over the whole queue; pure.
//
// Order: priority, then jobs that have waited longer than `ageing`, then the queue that uses least,
// then age. The first gang that does not fit reserves the nodes that it would need if all running
// gangs ended. Later gangs may use only the rest, so they cannot delay it. A gang that may preempt
// lower priorities names whole gangs to remove, never single pods. A gang that quota holds back
// holds back its namespace, not the nodes.
#pragma once

#include <cstddef>
#include <vector>

#include "operator/plan/placement/gangs.hpp"

namespace paceline::plan {

/// The same needs with one slot of the node (contract::kRuntimeResource) per pod. A gang is placed
/// with slots if that is possible without waiting. Otherwise its pods copy the runtime, which works
/// on every node.
std::vector<Need> with_slots(std::vector<Need> needs);

/// `searches`, if not null, gets how often all nodes were searched for the room of a gang: nearly
/// all the time of a pass goes there.
SchedulerOutput schedule(SchedulerInput input, std::size_t* searches = nullptr);

}  // namespace paceline::plan
