// SPDX-License-Identifier: Apache-2.0
#include "pool.hpp"

#include <limits>

namespace paceline::nccl {
namespace {

void lower_to(std::atomic<std::uint64_t>& bound, std::uint64_t value) {
  std::uint64_t seen = bound.load(std::memory_order_relaxed);
  while (value < seen && !bound.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

void raise_to(std::atomic<std::uint64_t>& bound, std::uint64_t value) {
  std::uint64_t seen = bound.load(std::memory_order_relaxed);
  while (value > seen && !bound.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

Handle Pool::start(Operation operation, std::uint32_t channels, std::uint64_t now_ns) {
  for (std::uint64_t tried = 0; tried < kMaxTries; ++tried) {
    const std::uint64_t serial = next_.fetch_add(1, std::memory_order_relaxed);
    const std::size_t place = serial % kPlaces;
    std::uint64_t tag = tags_[place].load(std::memory_order_acquire);
    if (state_of(tag) != kFree) continue;
    const std::uint64_t generation = generation_of(tag) + 1;
    if (!tags_[place].compare_exchange_strong(tag, generation << kStateBits | kFilling,
                                              std::memory_order_acquire))
      continue;
    operation.serial = serial + 1;
    fill(places_[place], operation, channels, now_ns);
    tags_[place].store(generation << kStateBits | kTaken, std::memory_order_release);
    return handle_of(generation, place, kOperation);
  }
  return 0;
}

void Pool::fill(Place& place, const Operation& operation, std::uint32_t channels,
                std::uint64_t now_ns) {
  constexpr std::uint64_t kLatest = std::numeric_limits<std::uint64_t>::max();
  place.operation = operation;
  place.started_ns = now_ns;
  place.channels = channels;
  place.begun.store(0, std::memory_order_relaxed);
  place.ended.store(0, std::memory_order_relaxed);
  place.waits.store(0, std::memory_order_relaxed);
  place.enqueued.store(false, std::memory_order_relaxed);
  place.broken.store(false, std::memory_order_relaxed);
  place.first_start.store(kLatest, std::memory_order_relaxed);
  place.last_stop.store(0, std::memory_order_relaxed);
  place.first_wait.store(kLatest, std::memory_order_relaxed);
  place.last_wait.store(0, std::memory_order_relaxed);
}

Pool::Place* Pool::find(Handle handle) {
  if (kind_of(handle) == kNothing) return nullptr;
  const std::size_t place = handle >> kKindBits & (kPlaces - 1);
  const std::uint64_t tag = tags_[place].load(std::memory_order_acquire);
  const bool same =
      state_of(tag) == kTaken && handle_of(generation_of(tag), place, kind_of(handle)) == handle;
  return same ? &places_[place] : nullptr;
}

Handle Pool::start_kernel(Handle handle, std::uint64_t start_ns) {
  if (kind_of(handle) != kOperation) return 0;
  Place* const place = find(handle);
  if (place == nullptr) return 0;
  if (start_ns == 0) place->broken.store(true, std::memory_order_relaxed);
  lower_to(place->first_start, start_ns);
  place->begun.fetch_add(1, std::memory_order_acq_rel);
  return (handle & ~std::uint64_t{3}) | kKernel;
}

Handle Pool::start_wait(Handle handle, std::uint64_t start_ns) {
  if (kind_of(handle) != kKernel) return 0;
  Place* const place = find(handle);
  if (place == nullptr || start_ns == 0) return 0;
  lower_to(place->first_wait, start_ns);
  return (handle & ~std::uint64_t{3}) | kWait;
}

void Pool::record_stop(Handle handle, std::uint64_t stop_ns) {
  Place* const place = find(handle);
  if (place == nullptr) return;
  if (kind_of(handle) == kKernel) {
    // Some releases report a channel that ends before it begins, or at 0.
    if (stop_ns < place->first_start.load(std::memory_order_relaxed))
      place->broken.store(true, std::memory_order_relaxed);
    raise_to(place->last_stop, stop_ns);
  } else if (kind_of(handle) == kWait) {
    raise_to(place->last_wait, stop_ns);
    place->waits.fetch_add(1, std::memory_order_relaxed);
  }
}

void Pool::stop(Handle handle, std::uint64_t now_ns) {
  Place* const place = find(handle);
  if (place == nullptr) return;
  if (kind_of(handle) == kOperation) {
    place->enqueued.store(true, std::memory_order_release);
  } else if (kind_of(handle) == kKernel) {
    if (now_ns != 0) raise_to(place->last_stop, now_ns);
    place->ended.fetch_add(1, std::memory_order_acq_rel);
  }
}

Pool::View Pool::view(const Place& place) {
  View view{place.operation, false, place.channels != 0, false, false, place.started_ns};
  view.enqueued = place.enqueued.load(std::memory_order_acquire);
  // In this order: a channel that begins in between makes the operation look unfinished.
  const std::uint32_t ended = place.ended.load(std::memory_order_acquire);
  const std::uint32_t begun = place.begun.load(std::memory_order_acquire);
  view.channels_idle = ended >= begun;
  view.channels_ended = view.channels_idle && ended >= place.channels;
  const std::uint64_t start = place.first_start.load(std::memory_order_relaxed);
  const std::uint64_t stop = place.last_stop.load(std::memory_order_relaxed);
  // More channels than announced: some belong to another operation.
  const bool own = begun > 0 && (place.channels == 0 || begun <= place.channels);
  if (own && stop > start && !place.broken.load(std::memory_order_relaxed)) {
    view.operation.start_ns = start;
    view.operation.stop_ns = stop;
    const std::uint64_t first = place.first_wait.load(std::memory_order_relaxed);
    const std::uint64_t last = place.last_wait.load(std::memory_order_relaxed);
    if (place.waits.load(std::memory_order_relaxed) > 0 && last >= first &&
        last - first <= stop - start) {
      view.operation.wait_known = true;
      view.operation.wait_ns = last - first;
    }
  }
  return view;
}

}  // namespace paceline::nccl
