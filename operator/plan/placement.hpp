// SPDX-License-Identifier: Apache-2.0
// Finds a node for every pod of a gang, or says why there is none. Pods of a role go side by side
// to as few nodes as possible (neighbours in rank share a node); what is left over goes where it
// fits tightest. Of nodes with the same room, one whose measured links carry less than half of what
// the others' carry is taken last by a gang that spans nodes. Roles are placed in their order;
// there is no backtracking between roles.
//
// Pure; linear in nodes per role plus one sort, for gangs of thousands on tens of thousands of
// nodes.
#pragma once

#include <expected>
#include <string>
#include <vector>

#include "operator/observe/views.hpp"
#include "operator/plan/constraints.hpp"

namespace paceline::plan {

/// One role of a gang.
struct Need {
  std::string role;
  observe::Resources each;
  Constraints constraints;
  int count = 0;
  bool accelerators = false;  // what an agent says of GPUs matters to it
};

/// One node and what is free on it. The views outlive the room.
struct Room {
  const observe::NodeView* node = nullptr;
  observe::Resources free = {};
  const observe::FabricView* fabric = nullptr;  // what its agent says; null: there is none
  bool agent_alive = false;                     // by its Lease; only known while a job asks for it
};

/// Indices into `rooms` in node-rank order. On success the rooms are smaller by the gang, otherwise
/// unchanged; the error is for people.
std::expected<std::vector<std::size_t>, std::string> place(const std::vector<Need>& needs,
                                                           bool exclusive_nodes,
                                                           std::vector<Room>& rooms);

}  // namespace paceline::plan
