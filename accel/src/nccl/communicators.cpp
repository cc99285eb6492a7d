// SPDX-License-Identifier: Apache-2.0
#include "communicators.hpp"

namespace paceline::nccl {

Context Communicators::open(std::uint64_t id, std::uint32_t size, std::uint32_t rank) {
  for (std::size_t place = 0; place < kPlaces; ++place) {
    Communicator& one = all_[place];
    std::uint64_t tag = one.tag.load(std::memory_order_acquire);
    if ((tag & 3U) != kFree) continue;
    const std::uint64_t generation = (tag >> 2U) + 1;
    if (!one.tag.compare_exchange_strong(tag, generation << 2U | kFilling,
                                         std::memory_order_acquire))
      continue;
    one.id.store(id, std::memory_order_relaxed);
    one.size.store(size, std::memory_order_relaxed);
    one.rank.store(rank, std::memory_order_relaxed);
    one.enqueued.store(0, std::memory_order_relaxed);
    one.last_used_ns.store(0, std::memory_order_relaxed);
    one.followed.store(false, std::memory_order_relaxed);
    one.replayed.store(false, std::memory_order_relaxed);
    for (auto& counted : one.counted) counted.store(0, std::memory_order_relaxed);
    one.tag.store(generation << 2U | kOpen, std::memory_order_release);
    return generation << kShift | place << 1U | 1U;
  }
  return 0;
}

Communicator* Communicators::find(Context context) {
  if ((context & 1U) == 0) return nullptr;
  Communicator& one = all_[place_of(context)];
  const std::uint64_t tag = one.tag.load(std::memory_order_acquire);
  return tag == (context >> kShift << 2U | kOpen) ? &one : nullptr;
}

void Communicators::close(Context context) {
  Communicator* const one = find(context);
  if (one == nullptr) return;
  one->tag.store(context >> kShift << 2U | kClosed, std::memory_order_release);
}

void Communicators::free(std::size_t place) {
  std::atomic<std::uint64_t>& tag = all_[place].tag;
  tag.store(tag.load(std::memory_order_relaxed) >> 2U << 2U | kFree, std::memory_order_release);
}

}  // namespace paceline::nccl
