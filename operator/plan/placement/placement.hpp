// SPDX-License-Identifier: Apache-2.0
// Finds a node for every pod of a gang, or says why that is impossible. The gang goes to as few
// domains of the network as possible, from the widest level to the nodes (packing.hpp), and to one
// domain of the level that the job requires. Of roles with and without accelerators, the closeness
// of those with accelerators counts; the others go near them. Of nodes with the same room, a gang
// that spans nodes takes last a node whose measured links carry less than half of what the others
// carry.
//
// Pure. Tries domains from the closest level on, so each node is looked at a few times for each
// role: for gangs of thousands of pods on tens of thousands of nodes. There is no backtracking
// between roles inside a domain.
#pragma once

#include <expected>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/plan/placement/needs.hpp"
#include "operator/plan/placement/topology.hpp"

namespace paceline::plan {

struct Ask {
  const std::vector<Need>& needs;
  std::optional<int> pods_per_node{};  // at most so many pods of the gang on a node
  std::optional<Level> required{};     // no placement crosses a domain of this level
  // The node of each other pod of the gang: the new ones go near them, and they count for
  // `pods_per_node`.
  std::multiset<std::string> occupied = {};
  // Of these nodes, the ones to go near to; all of them if none of these exists.
  std::set<std::string> neighbours = {};
};

struct Placement {
  std::vector<std::size_t> rooms;  // indices, in node-rank order
  std::string where;               // for people: Topology::describe, and why not closer
};

/// On success the gang is subtracted from the rooms; otherwise they stay unchanged. The error is
/// text for people.
std::expected<Placement, std::string> place(const Ask& ask, std::vector<Room>& rooms,
                                            const Topology& topology, Allowances& allowances);

}  // namespace paceline::plan
