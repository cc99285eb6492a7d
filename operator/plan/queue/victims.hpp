// SPDX-License-Identifier: Apache-2.0
// Which running gangs must stop so that a waiting gang of higher priority fits. Whole gangs, never
// single pods. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "operator/plan/placement/gangs.hpp"

namespace paceline::plan {

/// What a search for room works on. Refers to what a pass of the scheduler keeps.
struct Stage {
  const std::vector<Room>& rooms;
  const std::unordered_map<std::string, std::size_t>& room_of;  // by name of the node
  const Topology& topology;
  Allowances& allowances;
  std::size_t& searches;  // counted up
};

/// Chooses whole gangs of lower priority, lowest and youngest first, until the gang fits. Gangs
/// that are stopping anyway come first and are not named again. Empty: nobody has to be stopped, or
/// it would not help.
std::vector<const RunningGang*> victims(const QueuedGang& gang,
                                        const std::vector<RunningGang>& running, Stage stage);

}  // namespace paceline::plan
