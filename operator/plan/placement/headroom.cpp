// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/placement/headroom.hpp"

#include <algorithm>

namespace paceline::plan {

Headroom::Headroom(const Ask& ask, const std::vector<Room>& rooms, const Topology& topology,
                   Allowances& allowances)
    : topology_(topology), pods_per_node_(ask.pods_per_node), required_(ask.required) {
  for (const Need& need : ask.needs) {
    const bool bounded = required_ && is_close(need, ask.needs);
    roles_.push_back({&need, &allowances.of(need.constraints, rooms), bounded,
                      std::vector<int>(rooms.size()),
                      std::vector<std::int64_t>(bounded ? topology.domains(*required_).size() : 1),
                      need.count > 0 ? 0U : 1U});
  }
  for (std::size_t i = 0; i < rooms.size(); ++i) follow(i, rooms[i]);
}

std::size_t Headroom::domain_of(const Role& role, std::size_t room) const {
  return role.bounded ? topology_.domain(*required_, topology_.position(room)) : 0;
}

void Headroom::follow(std::size_t index, const Room& room) {
  for (Role& role : roles_) {
    const std::size_t domain = domain_of(role, index);
    if (!(*role.allowed)[index] || (role.bounded && !topology_.domains(*required_)[domain].known))
      continue;
    const int most = std::min(role.need->count, pods_per_node_.value_or(role.need->count));
    const int capacity = room.free.times(role.need->each, most);
    std::int64_t& total = role.total[domain];
    const bool before = total >= role.need->count;
    total += capacity - role.capacity[index];
    role.capacity[index] = capacity;
    const bool now = total >= role.need->count;
    if (now && !before) ++role.domains_enough;
    if (before && !now) --role.domains_enough;
  }
}

bool Headroom::enough() const {
  return std::ranges::all_of(roles_, [](const Role& role) { return role.domains_enough > 0; });
}

bool Headroom::concerns(std::size_t index) const {
  return std::ranges::any_of(roles_, [&](const Role& role) { return (*role.allowed)[index]; });
}

}  // namespace paceline::plan
