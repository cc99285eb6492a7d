// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/placement/packing.hpp"

#include <algorithm>

namespace paceline::plan {
namespace {

/// The slots of one domain, or a single one.
struct Part {
  std::span<const Slot> slots;
  int capacity = 0;
  int roomiest = 0;  // of its slots
  int far = 0;
  bool ailing = false;
  std::int64_t free_cpu = 0;
};

Part part_of(std::span<const Slot> slots) {
  Part part{slots};
  for (const Slot& slot : slots) {
    part.capacity += slot.capacity;
    part.roomiest = std::max(part.roomiest, slot.capacity);
    part.far += slot.far ? 1 : 0;
    part.free_cpu += slot.free_cpu;
  }
  // Only a single slot: a domain with some faulty nodes is not faulty.
  part.ailing = slots.size() == 1 && slots.front().ailing;
  return part;
}

/// Which part to fill first.
bool before(const Part& a, const Part& b) {
  if (a.ailing != b.ailing) return b.ailing;
  if (a.capacity != b.capacity) return a.capacity > b.capacity;
  if (a.slots.size() != b.slots.size()) return a.slots.size() < b.slots.size();
  if (a.far != b.far) return a.far < b.far;
  // Use the fullest nodes and leave empty ones whole.
  if (a.free_cpu != b.free_cpu) return a.free_cpu < b.free_cpu;
  return a.slots.data() < b.slots.data();
}

bool after(const Part& a, const Part& b) { return before(b, a); }

bool tighter(const Part* a, const Part* b) {
  return a->capacity != b->capacity ? a->capacity < b->capacity : before(*a, *b);
}

/// Of single slots.
bool nearer(const Part* a, const Part* b) {
  return a->far != b->far ? a->far < b->far : tighter(a, b);
}

class Packer {
 public:
  explicit Packer(const Topology& topology) : topology_(topology) {}

  /// Without `uses`, only the cost is asked for.
  Cost pack(std::span<const Slot> slots, std::size_t depth, int pods,
            std::vector<Use>* uses) const {
    if (depth > topology_.levels().size()) return take(slots.front(), pods, uses);
    std::vector<Part> parts = split(slots, depth);
    std::ranges::make_heap(parts, after);
    Cost cost;
    while (parts.front().capacity < pods) {
      std::ranges::pop_heap(parts, after);
      const Part& fullest = parts.back();
      cost.add(fill(fullest, depth, fullest.capacity, uses));
      pods -= fullest.capacity;
      parts.pop_back();
    }
    cost.add(fill(last(parts, depth, pods), depth, pods, uses));
    return cost;
  }

 private:
  static Cost take(const Slot& slot, int pods, std::vector<Use>* uses) {
    if (uses != nullptr) uses->push_back({slot.room, pods});
    Cost cost;
    cost.nodes = 1;
    cost.ailing = slot.ailing ? 1 : 0;
    cost.far = slot.far ? 1 : 0;
    return cost;
  }

  Cost fill(const Part& part, std::size_t depth, int pods, std::vector<Use>* uses) const {
    Cost cost = pack(part.slots, depth + 1, pods, uses);
    if (depth < topology_.levels().size()) ++cost.domains[depth];
    return cost;
  }

  /// The part that takes all of the remaining pods. The first of the heap can.
  Part last(const std::vector<Part>& parts, std::size_t depth, int pods) const {
    std::vector<const Part*> fitting;
    for (const Part& part : parts) {
      if (part.capacity >= pods && part.ailing == parts.front().ailing) fitting.push_back(&part);
    }
    if (depth == topology_.levels().size()) return **std::ranges::min_element(fitting, nearer);
    std::ranges::sort(fitting, tighter);
    const Part* best = nullptr;
    Cost least;
    const Cost bound = at_least(fitting, depth, pods);
    for (const Part* part : fitting) {
      const Cost cost = fill(*part, depth, pods, nullptr);
      if (best != nullptr && cost >= least) continue;
      best = part;
      least = cost;
      if (least <= bound) break;
    }
    return *best;
  }

  /// What any of the parts costs at least: it saves looking into all of them.
  Cost at_least(const std::vector<const Part*>& parts, std::size_t depth, int pods) const {
    int roomiest = 1;
    for (const Part* part : parts) roomiest = std::max(roomiest, part->roomiest);
    Cost cost;
    for (std::size_t i = depth; i < topology_.levels().size(); ++i) cost.domains[i] = 1;
    cost.nodes = (pods + roomiest - 1) / roomiest;
    return cost;
  }

  std::vector<Part> split(std::span<const Slot> slots, std::size_t depth) const {
    std::vector<Part> parts;
    const auto& levels = topology_.levels();
    for (std::size_t begin = 0; begin < slots.size();) {
      std::size_t end = begin + 1;
      if (depth < levels.size()) {
        const std::size_t until =
            topology_.domains(levels[depth])[topology_.domain(levels[depth], slots[begin].position)]
                .range.end;
        while (end < slots.size() && slots[end].position < until) ++end;
      }
      parts.push_back(part_of(slots.subspan(begin, end - begin)));
      begin = end;
    }
    return parts;
  }

  const Topology& topology_;
};

}  // namespace

void Cost::add(const Cost& more) {
  ailing += more.ailing;
  for (std::size_t i = 0; i < domains.size(); ++i) domains[i] += more.domains[i];
  nodes += more.nodes;
  far += more.far;
}

Packing pack(const Topology& topology, std::span<const Slot> slots, int pods) {
  Packing packing;
  packing.cost = Packer(topology).pack(slots, 0, pods, &packing.uses);
  return packing;
}

}  // namespace paceline::plan
