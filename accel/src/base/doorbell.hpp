// SPDX-License-Identifier: Apache-2.0
// Wakes one waiting process from any other, through shared memory. Who waits reads the count, looks
// for work, and waits only while the count is still the same: a ring in between is never missed.
//
// Ownership: lies in the region. Threads: any number ring; one waits. A ring costs a system call
// only while someone waits.
#pragma once

#include <atomic>
#include <cstdint>

namespace paceline::base {

enum class Wake : std::uint8_t { kRung, kTimeout, kSignal };

struct Doorbell {
  std::atomic<std::uint32_t> count;
  std::atomic<std::uint32_t> waiting;

  void ring();
  // Returns at once if the count is not `seen` any more. `timeout_ns` of 0 or less does not wait.
  Wake wait(std::uint32_t seen, std::int64_t timeout_ns);
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free,
              "doorbells are shared between processes");

}  // namespace paceline::base
