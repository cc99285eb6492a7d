// SPDX-License-Identifier: Apache-2.0
#include "comm/collective/pipeline.hpp"

namespace paceline::comm {

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

std::uint32_t Pipeline::awaited(const Schedule& schedule) const {
  std::uint32_t oldest = mine().copied_out.load(std::memory_order_acquire);
  for (std::uint32_t local = 0; local < ranks_; ++local) {
    const std::uint32_t copied_out = cell(local).copied_out.load(std::memory_order_acquire);
    if (static_cast<std::int32_t>(copied_out - oldest) < 0) oldest = copied_out;
  }
  const std::uint32_t count = oldest + 1;
  if (const std::uint32_t local = first_short(&Cell::copied_in, count, ranks_); local < ranks_)
    return topology_.mates()[local];
  for (std::atomic<std::uint32_t> Cell::* const counter : {&Cell::added, &Cell::finished}) {
    const std::uint32_t local = first_short(counter, count, topology_.channels);
    if (local == topology_.local && schedule.awaited_across) return schedule.awaited_across();
    if (local < topology_.channels) return topology_.mates()[local];
  }
  const std::uint32_t local = first_short(&Cell::copied_out, count, ranks_);
  return local < ranks_ ? topology_.mates()[local] : topology_.rank;
}

bool Pipeline::run(const Call& call, const Schedule& schedule) {
  mine().calls[calls_ % 2] = call;
  bool compared = false;
  while (!schedule.is_done()) {
    const std::uint32_t seen = mine().bell.count.load(std::memory_order_acquire);
    if (detector_.failed()) break;
    // Compare the ranks' calls before any of their data is used.
    if (!compared && all_reached(&Cell::copied_in, base_ + 1, ranks_)) {
      compared = true;
      for (std::uint32_t local = 0; local < ranks_; ++local)
        if (!detector_.same(topology_.mates()[local], cell(local).calls[calls_ % 2])) break;
      continue;
    }
    const bool some = compared ? schedule.advance() : schedule.copy_in();
    if (some) continue;
    if (!detector_.wait(mine().bell, seen, awaited(schedule))) break;
  }
  return !detector_.failed();
}

void Pipeline::next(std::uint32_t chunks) {
  base_ += chunks;
  ++calls_;
}

}  // namespace paceline::comm
