// SPDX-License-Identifier: Apache-2.0
// Packing: spreads the pods of one role over as few domains of the network as possible: first as
// few zones, then spines, leaves, NVLink domains and nodes. Consecutive pods share the closest
// domain, so that neighbours in rank share the closest link.
//
// In a domain, the parts that hold most are filled first. The rest of the pods goes to the part
// that needs the fewest domains inside it, and among equals to the tightest. Ties keep the order of
// the nodes, so that the same cluster gives the same answer.
//
// Pure. n log n in the number of slots for each level.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "operator/plan/placement/topology.hpp"

namespace paceline::plan {

/// What a node could take of a role.
struct Slot {
  std::size_t room = 0;
  std::size_t position = 0;  // in the topology's order
  int capacity = 0;          // pods
  std::int64_t free_cpu = 0;
  bool ailing = false;  // has a fault, but may still train: used only if no other node is left
  bool far = false;     // its measured links carry much less than those of others
};

/// How many of each a packing uses, the most expensive first.
struct Cost {
  int ailing = 0;
  std::array<int, kClosestFirst.size()> domains{};  // by Topology::levels
  int nodes = 0;
  int far = 0;
  auto operator<=>(const Cost&) const = default;
  void add(const Cost& more);
};

/// Neighbours in rank on the same node.
struct Use {
  std::size_t room = 0;
  int pods = 0;
};

struct Packing {
  Cost cost;
  std::vector<Use> uses;
};

/// The slots are sorted by position and hold at least `pods`.
Packing pack(const Topology& topology, std::span<const Slot> slots, int pods);

}  // namespace paceline::plan
