// SPDX-License-Identifier: Apache-2.0
// Topology: which nodes share an NVLink domain, a leaf switch, a spine and a zone. Domains of a
// closer level lie within one of the next wider level: of an NVLink domain whose nodes disagree on
// their leaf, the first node's leaf counts. Leaves of two spines may have the same name.
//
// A node without a label of a level shares a domain with no other node there, so that nothing
// unknown counts as close. Its NVLink domain is the node itself.
//
// Made of all rooms once for a pass of the scheduler. Immutable; it refers to the rooms' nodes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "operator/plan/placement/room.hpp"

namespace paceline::plan {

using Level = api::TopologyLevel;

inline constexpr std::array<Level, 4> kClosestFirst{Level::kNvlink, Level::kLeaf, Level::kSpine,
                                                    Level::kZone};

/// Positions from `begin` up to, without, `end`.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct Domain {
  Range range;
  std::string_view name;  // empty: no label names it
  // its nodes are close: they share the name, or are one node with its own NVLink
  bool known = false;
};

class Topology {
 public:
  explicit Topology(const std::vector<Room>& rooms);

  /// All rooms in an order in which every domain is one range of positions.
  const std::vector<std::size_t>& order() const { return order_; }
  std::size_t position(std::size_t room) const { return position_[room]; }
  Range everywhere() const { return {0, order_.size()}; }

  /// The levels that some node names a domain of, from the widest to the closest.
  const std::vector<Level>& levels() const { return levels_; }
  const std::vector<Domain>& domains(Level level) const { return of(level).domains; }
  /// The index of the position's domain in `domains`.
  std::size_t domain(Level level, std::size_t position) const { return of(level).at[position]; }

  /// For people: "16 nodes in 2 leaves, spine s3, zone eu-1".
  std::string describe(const std::vector<std::size_t>& rooms) const;

 private:
  struct Table {
    std::vector<Domain> domains;
    std::vector<std::uint32_t> at;  // by position
  };
  const Table& of(Level level) const { return tables_[static_cast<std::size_t>(level)]; }

  std::vector<std::size_t> order_;
  std::vector<std::size_t> position_;
  std::vector<Level> levels_;
  std::array<Table, kClosestFirst.size()> tables_;
};

/// "leaf", "leaves"; "NVLink domain", …
std::string_view noun(Level level, bool plural);

}  // namespace paceline::plan
