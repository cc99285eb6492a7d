// SPDX-License-Identifier: Apache-2.0
#include "comm/collective/pipeline.hpp"

namespace paceline::comm {
namespace {

// How often a wait looks again at which rank it waits for. The ring between hosts stalls without
// ringing the bell, and heartbeats must name the rank that it waits for then.
constexpr std::chrono::seconds kRefresh{1};

}  // namespace

Pipeline::Pipeline(const Topology& topology, Region& region, FailureDetector& detector)
    : topology_(topology),
      region_(region),
      detector_(detector),
      ranks_(static_cast<std::uint32_t>(topology.mates().size())),
      adds_(topology.local < topology.channels) {
  detector_.on_change([this] { mine().bell.ring(); });
}

void Pipeline::ring_all() const {
  for (std::uint32_t local = 0; local < ranks_; ++local) cell(local).bell.ring();
}

std::uint32_t Pipeline::first_short(std::atomic<std::uint32_t> Cell::* counter, std::uint32_t count,
                                    std::uint32_t cells) const {
  std::uint32_t local = 0;
  for (; local < cells; ++local) {
    const std::uint32_t now = (cell(local).*counter).load(std::memory_order_acquire);
    if (static_cast<std::int32_t>(now - count) < 0) break;
  }
  return local;
}

std::uint32_t Pipeline::awaited(const Turns& turns) const {
  std::uint32_t oldest = mine().taken.load(std::memory_order_acquire);
  for (std::uint32_t local = 0; local < ranks_; ++local) {
    const std::uint32_t taken = cell(local).taken.load(std::memory_order_acquire);
    if (static_cast<std::int32_t>(taken - oldest) < 0) oldest = taken;
  }
  const std::uint32_t count = oldest + 1;
  if (const std::uint32_t local = first_short(&Cell::given, count, ranks_); local < ranks_)
    return topology_.mates()[local];
  for (std::atomic<std::uint32_t> Cell::* const counter : {&Cell::added, &Cell::finished}) {
    const std::uint32_t local = first_short(counter, count, topology_.channels);
    if (local == topology_.local && turns.across) return turns.across();
    if (local < topology_.channels) return topology_.mates()[local];
  }
  const std::uint32_t local = first_short(&Cell::taken, count, ranks_);
  return local < ranks_ ? topology_.mates()[local] : topology_.rank;
}

bool Pipeline::run(const Call& call, const Turns& turns) {
  mine().calls[calls_ % 2] = call;
  bool compared = false;
  while (!turns.ended()) {
    const std::uint32_t seen = mine().bell.count.load(std::memory_order_acquire);
    if (detector_.failed()) break;
    // Compare the ranks' calls before any of their data is used.
    if (!compared && all_reached(&Cell::given, base_ + 1, ranks_)) {
      compared = true;
      for (std::uint32_t local = 0; local < ranks_; ++local)
        if (!detector_.same(topology_.mates()[local], cell(local).calls[calls_ % 2])) break;
      continue;
    }
    const bool some = compared ? turns.turn() : turns.give();
    if (some) continue;
    if (!detector_.wait(mine().bell, seen, awaited(turns), kRefresh)) break;
  }
  return !detector_.failed();
}

void Pipeline::next(std::uint32_t chunks) {
  base_ += chunks;
  ++calls_;
}

}  // namespace paceline::comm
