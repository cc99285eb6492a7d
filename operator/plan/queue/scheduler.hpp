// SPDX-License-Identifier: Apache-2.0
// Decides which queued gangs start now and where, why the others wait, and which running gangs must
// make room. One pass over the whole queue; pure.
//
// Order: priority, then jobs that have waited longer than `ageing`, then the queue that uses least,
// then age. The first gang that does not fit reserves the nodes that it would need if all running
// gangs ended. Later gangs may use only the rest, so they cannot delay it. A gang that may preempt
// lower priorities names whole gangs to remove, never single pods. A gang that quota holds back
// holds back its namespace, not the nodes.
//
// An elastic gang starts in the largest size that has room when it is its turn. It waits, reserves
// and preempts in its smallest size only. Running gangs that want to grow get what is left when the
// whole queue was considered, so they delay no waiting gang. Then they ask for nodes, too.
//
// A gang that prefers a level of the network, and could run elsewhere, waits for one domain of that
// level until its limit. Meanwhile it reserves, preempts and asks for nothing: later gangs go on.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "operator/plan/placement/gangs.hpp"

namespace paceline::plan {

/// The same needs with one slot of the node (contract::kRuntimeResource) per pod. A gang is placed
/// with slots if that is possible without waiting. Otherwise its pods copy the runtime, which works
/// on every node.
std::vector<Need> with_slots(std::vector<Need> needs);

/// How a pass went, for people and tests.
struct PassNotes {
  /// How often all nodes were searched for the room of a gang: nearly all the time goes there.
  std::size_t searches = 0;
  std::vector<std::string> order;  // ids of the queued gangs, as they were considered
};

SchedulerOutput schedule(SchedulerInput input, PassNotes* notes = nullptr);

}  // namespace paceline::plan
