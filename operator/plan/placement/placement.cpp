// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/placement/placement.hpp"

#include <algorithm>
#include <map>

namespace paceline::plan {
namespace {

struct Slot {
  std::size_t room = 0;
  int capacity = 0;
  bool ailing = false;
  bool far = false;
  bool preferred = false;
};

std::string why_not(const Need& need, const Room& room) {
  // The last report of a dead agent no longer counts.
  return refusal(need.constraints, *room.node, room.agent_alive ? room.fabric : nullptr);
}

/// Why a role does not fit, counted over the nodes: "worker: 1 of 2 pods fit; of 3 nodes 1 lacks
/// cpu, 1 is cordoned".
std::string explain(const Need& need, int fitting, const std::vector<Room>& rooms,
                    const std::vector<bool>& taken) {
  std::map<std::string, int> reasons;
  for (std::size_t i = 0; i < rooms.size(); ++i) {
    std::string reason = why_not(need, rooms[i]);
    if (reason.empty() && !taken.empty() && taken[i]) reason = "used by this job already";
    if (reason.empty()) {
      const std::string lacking = rooms[i].free.lacking(need.each);
      reason = lacking.empty() ? "" : "not enough " + lacking;
    }
    if (!reason.empty()) ++reasons[reason];
  }
  std::string text = need.role + ": " + std::to_string(fitting) + " of " +
                     std::to_string(need.count) + " pods fit on " + std::to_string(rooms.size()) +
                     " nodes";
  char separator = ';';
  for (const auto& [reason, count] : reasons) {
    text += separator;
    text += " " + std::to_string(count) + " " + reason;
    separator = ',';
  }
  return text;
}

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

/// The rooms that a role of a gang of `pods` pods could use, best first. Sound nodes come first,
/// then those that take most pods, then those with good links. Ties are broken by name, so that the
/// same cluster gives the same answer.
std::vector<Slot> slots_of(const Need& need, int pods, bool exclusive,
                           const std::vector<Room>& rooms, const std::vector<bool>& taken) {
  std::vector<Slot> slots;
  for (std::size_t i = 0; i < rooms.size(); ++i) {
    if (exclusive && taken[i]) continue;
    const int capacity = rooms[i].free.times(need.each, exclusive ? 1 : need.count);
    if (capacity > 0 && why_not(need, rooms[i]).empty())
      slots.push_back(
          {.room = i,
           .capacity = capacity,
           .ailing = need.accelerators && rooms[i].fabric != nullptr && rooms[i].fabric->ailing(),
           .preferred = rooms[i].node->meta.name == need.prefer});
  }
  // Only a gang that spans nodes depends on the links between them.
  const auto roomiest = std::ranges::max_element(slots, {}, &Slot::capacity);
  if (roomiest != slots.end() && roomiest->capacity < pods) mark_far(slots, rooms);
  std::sort(slots.begin(), slots.end(), [&](const Slot& a, const Slot& b) {
    // A node with a fault may still train. It is used only if no other node is left.
    if (a.ailing != b.ailing) return b.ailing;
    if (a.preferred != b.preferred) return a.preferred;
    if (a.capacity != b.capacity) return a.capacity > b.capacity;
    if (a.far != b.far) return b.far;
    // With one pod per node, use the fullest nodes and leave empty ones whole.
    const auto free_a = rooms[a.room].free.cpu;
    const auto free_b = rooms[b.room].free.cpu;
    if (free_a != free_b) return free_a < free_b;
    return rooms[a.room].node->meta.name < rooms[b.room].node->meta.name;
  });
  return slots;
}

}  // namespace

Result<Admitted> read_admitted(const std::string& pod) {
  auto view = observe::project_pod(pod);
  if (!view) return std::unexpected(view.error());
  const nlohmann::json document = nlohmann::json::parse(pod, nullptr, false);
  return Admitted{std::move(view->requests),
                  read_constraints(document.value("spec", nlohmann::json())),
                  view->gang && !view->gang->other_gates.empty()};
}

std::expected<std::vector<std::size_t>, std::string> place(const std::vector<Need>& needs,
                                                           bool exclusive_nodes,
                                                           std::vector<Room>& rooms,
                                                           const std::set<std::string>& occupied) {
  std::vector<std::size_t> chosen;
  std::vector<std::pair<std::size_t, observe::Resources>> undo;
  std::vector<bool> taken(exclusive_nodes ? rooms.size() : 0, false);
  for (std::size_t i = 0; i < taken.size(); ++i)
    taken[i] = occupied.contains(rooms[i].node->meta.name);
  int pods_of_gang = 0;
  for (const Need& need : needs) pods_of_gang += need.count;
  for (const Need& need : needs) {
    const std::vector<Slot> slots = slots_of(need, pods_of_gang, exclusive_nodes, rooms, taken);
    int left = need.count;
    std::size_t next = 0;
    while (left > 0 && next < slots.size()) {
      // Choose as the last node the tightest one that holds the remainder.
      std::size_t pick = next;
      if (slots[next].capacity >= left) {
        while (pick + 1 < slots.size() && slots[pick + 1].ailing == slots[next].ailing &&
               slots[pick + 1].capacity >= left)
          ++pick;
        while (pick > next && slots[pick - 1].capacity == slots[pick].capacity) --pick;
      }
      const Slot& slot = slots[pick];
      const int pods = std::min(left, slot.capacity);
      for (int i = 0; i < pods; ++i) {
        rooms[slot.room].free.subtract(need.each);
        undo.emplace_back(slot.room, need.each);
        chosen.push_back(slot.room);
      }
      if (exclusive_nodes) taken[slot.room] = true;
      left -= pods;
      ++next;
    }
    if (left > 0) {
      for (const auto& [room, amount] : undo) rooms[room].free.add(amount);
      return std::unexpected(explain(need, need.count - left, rooms, taken));
    }
  }
  return chosen;
}

}  // namespace paceline::plan
