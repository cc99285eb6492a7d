// SPDX-License-Identifier: Apache-2.0
// Headroom: how many pods of each role of a gang the rooms could take, each role by itself. It
// follows the rooms as they change, so that trying which running gangs must stop needs few searches
// of all rooms.
//
// Refers to the needs and allowances it was made of. The rooms that it is told of are always the
// same, in the same order.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "operator/plan/placement/placement.hpp"

namespace paceline::plan {

class Headroom {
 public:
  Headroom(const Ask& ask, const std::vector<Room>& rooms, const Topology& topology,
           Allowances& allowances);

  /// Room `index` has changed what is free.
  void follow(std::size_t index, const Room& room);
  /// False if `place` would fail. True does not mean that it succeeds, as roles share the rooms;
  /// with one role it does.
  bool enough() const;
  /// Whether any role could use the room, if it were empty.
  bool concerns(std::size_t index) const;

 private:
  struct Role {
    const Need* need;
    const std::vector<bool>* allowed;  // by room
    bool bounded;                      // must fit into one domain of the required level
    std::vector<int> capacity;         // pods, by room
    std::vector<std::int64_t> total;   // by domain
    std::size_t domains_enough = 0;    // how many could take the whole role
  };
  std::size_t domain_of(const Role& role, std::size_t room) const;

  const Topology& topology_;
  std::optional<int> pods_per_node_;
  std::optional<Level> required_;
  std::vector<Role> roles_;
};

}  // namespace paceline::plan
