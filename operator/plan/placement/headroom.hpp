// SPDX-License-Identifier: Apache-2.0
// Headroom: how many pods of each role of a gang the rooms could take, each role by itself. It
// follows the rooms as they change, so that trying which running gangs must stop needs few searches
// of all rooms.
//
// Refers to the needs and allowances it was made of. The rooms that it is told of are always the
// same, in the same order.
#pragma once

#include <cstdint>
#include <vector>

#include "operator/plan/placement/placement.hpp"

namespace paceline::plan {

class Headroom {
 public:
  Headroom(const std::vector<Need>& needs, bool exclusive_nodes, const std::vector<Room>& rooms,
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
    std::vector<int> capacity;         // pods, by room
    std::int64_t total = 0;
  };
  std::vector<Role> roles_;
  bool exclusive_nodes_;
};

}  // namespace paceline::plan
