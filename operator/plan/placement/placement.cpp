// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/placement/placement.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "operator/plan/placement/packing.hpp"

namespace paceline::plan {
namespace {

std::int64_t mbps_of(const Room& room) {
  return room.fabric != nullptr ? room.fabric->link_mbps : 0;
}

/// Marks rooms whose links carry less than half of the median of the others, if at least two others
/// were measured.
void mark_far(std::vector<Slot>& slots, const std::vector<Room>& rooms) {
  std::vector<std::int64_t> measured;
  for (const Slot& slot : slots) {
    if (const std::int64_t mbps = mbps_of(rooms[slot.room]); mbps > 0) measured.push_back(mbps);
  }
  std::ranges::sort(measured);
  if (measured.size() < 3) return;
  for (Slot& slot : slots) {
    const std::int64_t mbps = mbps_of(rooms[slot.room]);
    if (mbps == 0) continue;
    // Of two middle values take the lower one, so that one exaggerating node changes nothing.
    const std::size_t others = measured.size() - 1;
    const auto own =
        static_cast<std::size_t>(std::ranges::lower_bound(measured, mbps) - measured.begin());
    const std::size_t middle = (others - 1) / 2;
    slot.far = mbps < measured[middle < own ? middle : middle + 1] / 2;
  }
}

/// One role while its place is looked for.
struct Role {
  const Need* need = nullptr;
  std::vector<Slot> slots = {};  // of the rooms as they were, by position
  std::int64_t capacity = 0;
  std::vector<Use> uses = {};  // its place
};

class Placer {
 public:
  Placer(const Ask& ask, std::vector<Room>& rooms, const Topology& topology, Allowances& allowances)
      : ask_(ask), rooms_(rooms), topology_(topology), pods_on_(rooms.size(), 0) {
    for (std::size_t i = 0; !ask.occupied.empty() && i < rooms.size(); ++i) {
      if (!ask.occupied.contains(rooms[i].node->meta.name)) continue;
      others_.push_back(i);
      pods_on_[i] += static_cast<int>(ask.occupied.count(rooms[i].node->meta.name));
    }
    if (std::vector<std::size_t> near = neighbours(); !near.empty()) others_ = std::move(near);
    int pods = 0;
    for (const Need& need : ask.needs) pods += need.count;
    for (const Need& need : ask.needs)
      roles_.push_back(role_of(need, allowances.of(need.constraints, rooms), pods));
    for (Role& role : roles_) (is_close(*role.need, ask.needs) ? close_ : rest_).push_back(&role);
  }

  std::expected<Placement, std::string> run() {
    for (const Role& role : roles_) {
      if (role.capacity < role.need->count) return std::unexpected(lacking(role, role.capacity));
    }
    const bool any_ailing = std::ranges::any_of(
        roles_, [](const Role& role) { return std::ranges::any_of(role.slots, &Slot::ailing); });
    for (const bool sound : {true, false}) {
      if (sound && !any_ailing) continue;
      crossed_.reset();
      if (put_on_preferred() || (others_.empty() ? place_gang(sound) : place_near_others(sound)))
        return placement();
    }
    // Explained once, since that looks at every node.
    return std::unexpected(crossed_ ? crossing(*crossed_) : lacking(*lacks_room_, fitting_));
  }

 private:
  std::vector<std::size_t> neighbours() const {
    std::vector<std::size_t> found;
    std::ranges::copy_if(others_, std::back_inserter(found), [&](std::size_t room) {
      return ask_.neighbours.contains(rooms_[room].node->meta.name);
    });
    return found;
  }

  Role role_of(const Need& need, const std::vector<bool>& allowed, int pods_of_gang) {
    Role role{.need = &need};
    int roomiest = 0;
    role.slots.reserve(rooms_.size());
    for (std::size_t position = 0; position < rooms_.size(); ++position) {
      const std::size_t i = topology_.order()[position];
      if (!allowed[i]) continue;
      Slot slot{.room = i, .position = position};
      if (!measure(need, slot)) continue;
      slot.ailing = need.accelerators && rooms_[i].fabric != nullptr && rooms_[i].fabric->ailing();
      role.capacity += slot.capacity;
      roomiest = std::max(roomiest, slot.capacity);
      role.slots.push_back(slot);
    }
    // Only a gang that spans nodes depends on the links between them.
    if (roomiest < pods_of_gang) mark_far(role.slots, rooms_);
    return role;
  }

  /// How many more pods of the gang the room may have by `pods_per_node`.
  int left_by_limit(std::size_t room) const {
    return ask_.pods_per_node ? *ask_.pods_per_node - pods_on_[room]
                              : std::numeric_limits<int>::max();
  }

  /// What the room takes of the role now. False if nothing.
  bool measure(const Need& need, Slot& slot) const {
    const Room& room = rooms_[slot.room];
    const int most = std::min(need.count, left_by_limit(slot.room));
    slot.capacity = most > 0 ? room.free.times(need.each, most) : 0;
    slot.free_cpu = room.free.cpu;
    return slot.capacity > 0;
  }

  /// Places a role within the range, if all of it fits there. With `sound`, no ailing node is used.
  std::optional<Cost> put(Role& role, Range range, bool sound) {
    const Need& need = *role.need;
    std::vector<Slot> slots;
    slots.reserve(std::min(role.slots.size(), range.end - range.begin));
    std::int64_t capacity = 0;
    const auto first = std::ranges::lower_bound(role.slots, range.begin, {}, &Slot::position);
    for (auto it = first; it != role.slots.end() && it->position < range.end; ++it) {
      Slot slot = *it;
      if (sound && slot.ailing) continue;
      if (pods_on_[slot.room] > 0 && !measure(need, slot)) continue;
      capacity += slot.capacity;
      slots.push_back(slot);
    }
    if (capacity < need.count) {
      lacks_room_ = &role;
      fitting_ = capacity;
      return std::nullopt;
    }
    Packing packing = pack(topology_, slots, need.count);
    for (const Use& use : packing.uses) {
      for (int i = 0; i < use.pods; ++i) rooms_[use.room].free.subtract(need.each);
      pods_on_[use.room] += use.pods;
    }
    role.uses = std::move(packing.uses);
    return packing.cost;
  }

  void take_back(Role& role) {
    for (const Use& use : role.uses) {
      for (int i = 0; i < use.pods; ++i) rooms_[use.room].free.add(role.need->each);
      pods_on_[use.room] -= use.pods;
    }
    role.uses.clear();
  }

  void take_back_all() {
    for (Role& role : roles_) take_back(role);
  }

  bool place_gang(bool sound) {
    if (place_close(sound)) {
      std::vector<std::size_t> near;
      for (const Role* role : close_) {
        for (const Use& use : role->uses) near.push_back(use.room);
      }
      if (std::ranges::all_of(
              rest_, [&](Role* role) { return put_near(*role, near, std::nullopt, sound); }))
        return true;
      take_back_all();
    }
    if (ask_.required || roles_.size() == 1) return false;
    for (Role& role : roles_) {
      if (put(role, topology_.everywhere(), sound)) continue;
      take_back_all();
      return false;
    }
    return true;
  }

  /// Places the roles whose closeness counts: all in one domain, of the closest level possible.
  bool place_close(bool sound) {
    // A role by itself finds the closest domain in `pack`.
    const bool alone = close_.size() == 1;
    for (const Level level : kClosestFirst) {
      const bool last = ask_.required == level;
      if (last || (!alone && names(level))) {
        if (place_in_best(level, sound)) return true;
      }
      if (last) {
        crossed_ = level;
        return false;
      }
    }
    return put_all(topology_.everywhere(), sound).has_value();
  }

  std::optional<Cost> put_all(Range range, bool sound) {
    Cost cost;
    for (Role* role : close_) {
      const auto one = put(*role, range, sound);
      if (!one) {
        for (Role* placed : close_) take_back(*placed);
        return std::nullopt;
      }
      cost.add(*one);
    }
    return cost;
  }

  /// Tries every domain of a level in which each role fits by itself.
  bool place_in_best(Level level, bool sound) {
    const auto& domains = topology_.domains(level);
    std::vector<bool> fits(domains.size(), true);
    std::vector<std::int64_t> total(domains.size(), 0);
    for (const Role* role : close_) {
      const std::vector<std::int64_t> capacity = capacities(*role, level);
      for (std::size_t i = 0; i < domains.size(); ++i) {
        fits[i] = fits[i] && capacity[i] >= role->need->count;
        total[i] += capacity[i];
      }
    }
    std::optional<std::size_t> best;
    Cost least;
    for (std::size_t i = 0; i < domains.size(); ++i) {
      if (!fits[i]) continue;
      const auto cost = put_all(domains[i].range, sound);
      if (!cost) continue;
      for (Role* role : close_) take_back(*role);
      if (!best || *cost < least || (*cost == least && total[i] < total[*best])) {
        best = i;
        least = *cost;
      }
    }
    return best && put_all(domains[*best].range, sound);
  }

  /// What the domains of a level take of a role; of those of which it is known that they are one.
  std::vector<std::int64_t> capacities(const Role& role, Level level) const {
    std::vector<std::int64_t> capacity(topology_.domains(level).size(), 0);
    for (const Slot& slot : role.slots) {
      const std::size_t domain = topology_.domain(level, slot.position);
      if (topology_.domains(level)[domain].known) capacity[domain] += slot.capacity;
    }
    return capacity;
  }

  /// Places a role in the closest domain around most of the other rooms.
  bool put_near(Role& role, const std::vector<std::size_t>& others, std::optional<Level> required,
                bool sound) {
    for (const Level level : kClosestFirst) {
      if (const auto range = around(others, level); range && put(role, *range, sound)) return true;
      if (required == level) return false;
    }
    return put(role, topology_.everywhere(), sound).has_value();
  }

  std::optional<Range> around(const std::vector<std::size_t>& others, Level level) const {
    std::map<std::size_t, int> counts;
    for (const std::size_t room : others)
      ++counts[topology_.domain(level, topology_.position(room))];
    if (counts.empty()) return std::nullopt;
    const auto most =
        std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
    return topology_.domains(level)[most->first].range;
  }

  bool place_near_others(bool sound) {
    for (Role& role : roles_) {
      if (put_near(role, others_, ask_.required, sound)) continue;
      take_back_all();
      return false;
    }
    return true;
  }

  /// Only a role by itself may prefer a node.
  bool put_on_preferred() {
    Role& role = roles_.front();
    if (roles_.size() > 1 || role.need->prefer.empty()) return false;
    const auto slot = std::ranges::find_if(role.slots, [&](const Slot& one) {
      return rooms_[one.room].node->meta.name == role.need->prefer;
    });
    return slot != role.slots.end() &&
           put(role, {slot->position, slot->position + 1}, true).has_value();
  }

  bool names(Level level) const {
    return std::ranges::find(topology_.levels(), level) != topology_.levels().end();
  }

  std::string lacking(const Role& role, std::int64_t fitting) const {
    std::vector<int> left(rooms_.size());
    for (std::size_t i = 0; i < rooms_.size(); ++i) left[i] = left_by_limit(i);
    std::string why = explain(*role.need, static_cast<int>(fitting), rooms_, left);
    if (ask_.pods_per_node) why += "; podsPerNode is " + std::to_string(*ask_.pods_per_node);
    return why;
  }

  /// Why a gang that fits does not fit into one domain: "no leaf has room for all 16 pods of
  /// worker: the roomiest takes 12".
  std::string crossing(Level level) const {
    const auto& domains = topology_.domains(level);
    if (std::ranges::none_of(domains, &Domain::known))
      return "no node has a label that names its " + std::string(noun(level, false));
    for (const Role* role : close_) {
      const auto most = std::ranges::max(capacities(*role, level));
      if (most >= role->need->count) continue;
      return "no " + std::string(noun(level, false)) + " has room for all " +
             std::to_string(role->need->count) + " pods of " + role->need->role +
             ": the roomiest takes " + std::to_string(most);
    }
    return "no " + std::string(noun(level, false)) + " has room for all roles together";
  }

  Placement placement() const {
    Placement placement;
    for (const Role& role : roles_) {
      for (const Use& use : role.uses)
        placement.rooms.insert(placement.rooms.end(), static_cast<std::size_t>(use.pods), use.room);
    }
    placement.where = topology_.describe(placement.rooms);
    if (ask_.occupied.empty() && close_.size() == 1) {
      for (const Level level : topology_.levels()) {
        if (!crosses(*close_.front(), level)) continue;
        // If one domain has the room, some of its nodes are faulty.
        if (std::ranges::max(capacities(*close_.front(), level)) < close_.front()->need->count)
          placement.where += "; " + crossing(level);
        break;
      }
    }
    return placement;
  }

  bool crosses(const Role& role, Level level) const {
    const auto domain = [&](const Use& use) {
      return topology_.domain(level, topology_.position(use.room));
    };
    return std::ranges::any_of(
        role.uses, [&](const Use& use) { return domain(use) != domain(role.uses.front()); });
  }

  const Ask& ask_;
  std::vector<Room>& rooms_;
  const Topology& topology_;
  std::vector<int> pods_on_;         // by room: pods of the gang
  std::vector<std::size_t> others_;  // rooms of other pods of the gang, to go near to
  std::vector<Role> roles_;
  std::vector<Role*> close_;
  std::vector<Role*> rest_;
  // why the last try failed
  const Role* lacks_room_ = nullptr;
  std::int64_t fitting_ = 0;
  std::optional<Level> crossed_;
};

}  // namespace

std::expected<Placement, std::string> place(const Ask& ask, std::vector<Room>& rooms,
                                            const Topology& topology, Allowances& allowances) {
  return Placer(ask, rooms, topology, allowances).run();
}

}  // namespace paceline::plan
