// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/placement/placement.hpp"

#include <algorithm>
#include <map>

namespace paceline::plan {
namespace {

struct Slot {
  std::size_t room = 0;
  int capacity = 0;
  std::int64_t free_cpu = 0;
  bool ailing = false;
  bool far = false;
  bool preferred = false;
};

std::string why_not(const Constraints& constraints, const Room& room) {
  // The last report of a dead agent no longer counts.
  return refusal(constraints, *room.node, room.agent_alive ? room.fabric : nullptr);
}

/// Why a role does not fit, counted over the nodes: "worker: 1 of 2 pods fit; of 3 nodes 1 lacks
/// cpu, 1 is cordoned".
std::string explain(const Need& need, int fitting, const std::vector<Room>& rooms,
                    const std::vector<bool>& taken) {
  std::map<std::string, int> reasons;
  for (std::size_t i = 0; i < rooms.size(); ++i) {
    std::string reason = why_not(need.constraints, rooms[i]);
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

/// The rooms that a role could use, in their order.
std::vector<Slot> slots_of(const Need& need, bool exclusive, const std::vector<Room>& rooms,
                           const std::vector<bool>& allowed, const std::vector<bool>& taken) {
  std::vector<Slot> slots;
  slots.reserve(rooms.size());
  for (std::size_t i = 0; i < rooms.size(); ++i) {
    if (!allowed[i] || (exclusive && taken[i])) continue;
    const int capacity = rooms[i].free.times(need.each, exclusive ? 1 : need.count);
    if (capacity > 0)
      slots.push_back(
          {.room = i,
           .capacity = capacity,
           .free_cpu = rooms[i].free.cpu,
           .ailing = need.accelerators && rooms[i].fabric != nullptr && rooms[i].fabric->ailing(),
           .preferred = !need.prefer.empty() && rooms[i].node->meta.name == need.prefer});
  }
  return slots;
}

/// Sound nodes come first, then those that take most pods, then those with good links. Ties keep
/// the order of the rooms, so that the same cluster gives the same answer.
bool better(const Slot& a, const Slot& b) {
  // A node with a fault may still train. It is used only if no other node is left.
  if (a.ailing != b.ailing) return b.ailing;
  if (a.preferred != b.preferred) return a.preferred;
  if (a.capacity != b.capacity) return a.capacity > b.capacity;
  if (a.far != b.far) return b.far;
  // With one pod per node, use the fullest nodes and leave empty ones whole.
  if (a.free_cpu != b.free_cpu) return a.free_cpu < b.free_cpu;
  return a.room < b.room;
}

/// The best of the slots at any time. A gang uses few of them, so they are not sorted.
class Ranking {
 public:
  explicit Ranking(std::vector<Slot> slots) : slots_(std::move(slots)) {
    std::ranges::make_heap(slots_, worse);
  }

  /// Takes out the slot to use next for `pods` more pods: the best, or if it holds all of them, the
  /// tightest that does. There must be one.
  Slot take(int pods) {
    if (slots_.front().capacity >= pods) {
      const bool ailing = slots_.front().ailing;
      const Slot* tightest = &slots_.front();
      for (const Slot& slot : slots_) {
        if (slot.ailing != ailing || slot.capacity < pods) continue;
        if (slot.capacity < tightest->capacity ||
            (slot.capacity == tightest->capacity && better(slot, *tightest)))
          tightest = &slot;
      }
      return *tightest;  // the last one of its role
    }
    std::ranges::pop_heap(slots_, worse);
    const Slot best = slots_.back();
    slots_.pop_back();
    return best;
  }

 private:
  static bool worse(const Slot& a, const Slot& b) { return better(b, a); }

  std::vector<Slot> slots_;
};

}  // namespace

Result<Admitted> read_admitted(const std::string& pod) {
  auto view = observe::project_pod(pod);
  if (!view) return std::unexpected(view.error());
  const nlohmann::json document = nlohmann::json::parse(pod, nullptr, false);
  return Admitted{std::move(view->requests),
                  read_constraints(document.value("spec", nlohmann::json())),
                  view->gang && !view->gang->other_gates.empty()};
}

const std::vector<bool>& Allowances::of(const Constraints& constraints,
                                        const std::vector<Room>& rooms) {
  for (const auto& [known, allowed] : known_) {
    if (known == constraints) return allowed;
  }
  std::vector<bool> allowed;
  allowed.reserve(rooms.size());
  for (const Room& room : rooms) allowed.push_back(why_not(constraints, room).empty());
  return known_.emplace_back(constraints, std::move(allowed)).second;
}

std::expected<std::vector<std::size_t>, std::string> place(const std::vector<Need>& needs,
                                                           bool exclusive_nodes,
                                                           std::vector<Room>& rooms,
                                                           Allowances& allowances,
                                                           const std::set<std::string>& occupied) {
  std::vector<std::size_t> chosen;
  std::vector<std::pair<std::size_t, const observe::Resources*>> undo;
  std::vector<bool> taken(exclusive_nodes ? rooms.size() : 0, false);
  for (std::size_t i = 0; i < taken.size(); ++i)
    taken[i] = occupied.contains(rooms[i].node->meta.name);
  int pods_of_gang = 0;
  for (const Need& need : needs) pods_of_gang += need.count;
  for (const Need& need : needs) {
    std::vector<Slot> slots =
        slots_of(need, exclusive_nodes, rooms, allowances.of(need.constraints, rooms), taken);
    std::int64_t fitting = 0;
    for (const Slot& slot : slots) fitting += slot.capacity;
    if (fitting < need.count) {
      for (const auto& [room, amount] : undo) rooms[room].free.add(*amount);
      return std::unexpected(explain(need, static_cast<int>(fitting), rooms, taken));
    }
    // Only a gang that spans nodes depends on the links between them.
    const auto roomiest = std::ranges::max_element(slots, {}, &Slot::capacity);
    if (roomiest != slots.end() && roomiest->capacity < pods_of_gang) mark_far(slots, rooms);
    Ranking ranking(std::move(slots));
    for (int left = need.count; left > 0;) {
      const Slot slot = ranking.take(left);
      const int pods = std::min(left, slot.capacity);
      for (int i = 0; i < pods; ++i) {
        rooms[slot.room].free.subtract(need.each);
        undo.emplace_back(slot.room, &need.each);
        chosen.push_back(slot.room);
      }
      if (exclusive_nodes) taken[slot.room] = true;
      left -= pods;
    }
  }
  return chosen;
}

}  // namespace paceline::plan
