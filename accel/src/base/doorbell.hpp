// SPDX-License-Identifier: Apache-2.0
// Wakes one waiting process from another, through shared memory. The loader and the communicator
// use it. The waiter reads the count, looks for work, and waits only while the count is unchanged,
// so it never misses a ring in between.
//
// Ownership: lies in shared memory that its user owns. Threads: any number may ring; one waits.
// Ringing costs a system call only while somebody waits.
#pragma once

#include <atomic>
#include <cstdint>

namespace paceline::base {

enum class Wake : std::uint8_t { kRung, kTimeout, kSignal };

struct Doorbell {
  std::atomic<std::uint32_t> count;
  std::atomic<std::uint32_t> waiting;

  void ring();
  // Returns at once if the count is no longer `seen`. With `timeout_ns` of 0 or less it does not
  // wait.
  Wake wait(std::uint32_t seen, std::int64_t timeout_ns);
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free,
              "doorbells are shared between processes");

}  // namespace paceline::base
