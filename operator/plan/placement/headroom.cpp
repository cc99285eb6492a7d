// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/placement/headroom.hpp"

#include <algorithm>

namespace paceline::plan {

Headroom::Headroom(const std::vector<Need>& needs, bool exclusive_nodes,
                   const std::vector<Room>& rooms, Allowances& allowances)
    : exclusive_nodes_(exclusive_nodes) {
  for (const Need& need : needs) {
    const std::vector<bool>& allowed = allowances.of(need.constraints, rooms);
    roles_.push_back({&need, &allowed, std::vector<int>(rooms.size())});
  }
  for (std::size_t i = 0; i < rooms.size(); ++i) follow(i, rooms[i]);
}

void Headroom::follow(std::size_t index, const Room& room) {
  for (Role& role : roles_) {
    if (!(*role.allowed)[index]) continue;
    const int most = exclusive_nodes_ ? 1 : role.need->count;
    const int capacity = room.free.times(role.need->each, most);
    role.total += capacity - role.capacity[index];
    role.capacity[index] = capacity;
  }
}

bool Headroom::enough() const {
  return std::ranges::all_of(roles_,
                             [](const Role& role) { return role.total >= role.need->count; });
}

bool Headroom::concerns(std::size_t index) const {
  return std::ranges::any_of(roles_, [&](const Role& role) { return (*role.allowed)[index]; });
}

}  // namespace paceline::plan
