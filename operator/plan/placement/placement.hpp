// SPDX-License-Identifier: Apache-2.0
// Finds a node for every pod of a gang, or says why that is impossible. The pods of a role go to as
// few nodes as possible, so that neighbours in rank share a node; the remainder goes to the node
// with the tightest fit. Of nodes with the same room, a gang that spans nodes takes last a node
// whose measured links carry less than half of what the others carry. Roles are placed in order,
// without backtracking between roles.
//
// Pure. Linear in the number of nodes per role, for gangs of thousands of pods on tens of thousands
// of nodes.
#pragma once

#include <deque>
#include <expected>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "operator/observe/views.hpp"
#include "operator/plan/placement/constraints.hpp"

namespace paceline::plan {

/// What one pod of a role needs, as the API server admits it: with the defaults of LimitRanges, the
/// overhead of its RuntimeClass, and what webhooks add.
struct Admitted {
  observe::Resources each;
  Constraints constraints;
  bool held = false;  // by a scheduling gate that is not Paceline's
};

/// From a pod as the API server returned it.
Result<Admitted> read_admitted(const std::string& pod);

/// One role of a gang.
struct Need {
  std::string role;
  observe::Resources each;
  Constraints constraints;
  int count = 0;
  bool accelerators = false;  // the agent's report about GPUs matters for this role
  std::string prefer = {};    // a node to take if it is as sound as the others; may be empty
  bool operator==(const Need&) const = default;
};

/// One node and what is free on it. The views must outlive it.
struct Room {
  const observe::NodeView* node = nullptr;
  observe::Resources free = {};
  const observe::FabricView* fabric = nullptr;  // the agent's report; null: there is none
  bool agent_alive = false;                     // by its Lease; known only while a job needs it
};

/// Which rooms pods with some constraints may use, however much is free there. Asks each room once
/// for each kind of constraints: in one pass of the scheduler hundreds of gangs have the same.
class Allowances {
 public:
  /// By room. Every call is about the same rooms.
  const std::vector<bool>& of(const Constraints& constraints, const std::vector<Room>& rooms);

 private:
  std::deque<std::pair<Constraints, std::vector<bool>>> known_;
};

/// Indices into `rooms` in node-rank order. Of rooms that are as good, the first is taken. On
/// success the gang is subtracted from the rooms; otherwise they stay unchanged. With
/// `exclusive_nodes`, each pod gets a node of its own, and none of `occupied`, the nodes of other
/// pods of the gang. The error is text for people.
std::expected<std::vector<std::size_t>, std::string> place(
    const std::vector<Need>& needs, bool exclusive_nodes, std::vector<Room>& rooms,
    Allowances& allowances, const std::set<std::string>& occupied = {});

}  // namespace paceline::plan
