// SPDX-License-Identifier: Apache-2.0
#include "loader/exchange/exchange.hpp"

#include <chrono>
#include <utility>

namespace paceline::loader {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Calls `look` after every ring of the bell, until it returns true, the time is over or a signal
// arrives.
template <typename Look>
base::Wake wait_for(base::Doorbell& bell, std::int64_t timeout_ns, const Look& look) {
  std::int64_t end = -1;
  for (;;) {
    const std::uint32_t seen = bell.count.load(std::memory_order_seq_cst);
    if (look()) return base::Wake::kRung;
    if (timeout_ns <= 0) return base::Wake::kTimeout;
    const std::int64_t now = now_ns();
    if (end < 0) end = now + timeout_ns;
    const base::Wake wake = bell.wait(seen, end - now);
    if (wake != base::Wake::kRung) return wake;
  }
}

}  // namespace

Exchange::Exchange(std::unique_ptr<Region> region)
    : region_(std::move(region)), sides_(region_->workers()) {}

std::uint32_t Exchange::claim(std::uint32_t worker, std::uint64_t avoid) {
  auto& taken = region_->control(worker).taken;
  for (std::uint32_t slot = 0; slot < region_->slots(); ++slot) {
    if ((avoid >> slot & 1U) != 0 || taken[slot].load(std::memory_order_acquire) != 0) continue;
    taken[slot].store(1, std::memory_order_relaxed);  // only this worker claims its slots
    return slot;
  }
  return PACELINE_LOADER_MAX_SLOTS;
}

void Exchange::release(std::uint32_t worker, std::uint32_t slot) {
  region_->control(worker).taken[slot].store(0, std::memory_order_release);
}

void Exchange::tell(std::uint32_t worker, const void* data, std::uint64_t size) {
  const std::scoped_lock lock(outboxes_);
  Outbox& outbox = sides_[worker].outbox;
  outbox.bytes.append(reinterpret_cast<const char*>(&size), kLengthBytes);
  outbox.bytes.append(static_cast<const char*>(data), size);
  flush(worker);
}

void Exchange::flush(std::uint32_t worker) {
  Outbox& outbox = sides_[worker].outbox;
  if (outbox.bytes.empty()) return;
  Control& control = region_->control(worker);
  // Set before writing, so that a worker that makes room from now on rings the bell.
  control.backlog.store(1, std::memory_order_seq_cst);
  const std::size_t sent = region_->down(worker).write(
      reinterpret_cast<const std::byte*>(outbox.bytes.data()) + outbox.sent,
      outbox.bytes.size() - outbox.sent);
  outbox.sent += sent;
  if (outbox.sent == outbox.bytes.size()) {
    outbox = {};
    control.backlog.store(0, std::memory_order_seq_cst);
  }
  if (sent > 0) control.bell.ring();
}

base::Wake Exchange::collect(std::int64_t timeout_ns, std::uint32_t& worker,
                             std::string*& message) {
  const std::uint32_t workers = region_->workers();
  return wait_for(region_->makers_bell(), timeout_ns, [&] {
    {
      const std::scoped_lock lock(outboxes_);
      for (std::uint32_t i = 0; i < workers; ++i) flush(i);
    }
    for (std::uint32_t i = 0; i < workers; ++i) {
      const std::uint32_t candidate = (next_ + i) % workers;
      base::ByteRing ring = region_->up(candidate);
      const bool something = ring.readable() > 0;
      const bool whole = something && sides_[candidate].from_worker.read_message(ring, collected_);
      if (something) region_->control(candidate).bell.ring();  // the ring has room again
      if (!whole) continue;
      next_ = (candidate + 1) % workers;
      worker = candidate;
      message = &collected_;
      return true;
    }
    return false;
  });
}

base::Wake Exchange::hear(std::uint32_t worker, std::int64_t timeout_ns, std::string*& message) {
  Control& control = region_->control(worker);
  Side& side = sides_[worker];
  return wait_for(control.bell, timeout_ns, [&] {
    const bool whole = side.from_maker.read_message(region_->down(worker), side.heard);
    if (control.backlog.load(std::memory_order_seq_cst) != 0) region_->makers_bell().ring();
    message = &side.heard;
    return whole;
  });
}

base::Wake Exchange::answer(std::uint32_t worker, const void* data, std::uint64_t size,
                            std::int64_t timeout_ns, std::uint64_t& sent) {
  return wait_for(region_->control(worker).bell, timeout_ns, [&] {
    const std::uint64_t before = sent;
    const bool whole = write_message(region_->up(worker), data, size, sent);
    if (sent != before) region_->makers_bell().ring();
    return whole;
  });
}

}  // namespace paceline::loader
