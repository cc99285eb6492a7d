// SPDX-License-Identifier: Apache-2.0
// A stream of bytes between two processes through shared memory: one writes, one reads. The loader
// and the communicator use it. Both cursors lie in the shared memory, and a cursor moves only after
// its bytes are copied. So either process may die at any instruction, and another process with the
// same mapping may continue in its place.
//
// Ownership: a view; the caller owns the memory. Threads: one writer, one reader. Nothing blocks or
// fails: a call moves fewer bytes where there is no more room or data.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace paceline::base {

struct RingCursors {
  alignas(64) std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> taken;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free,
              "cursors are shared between processes");

class ByteRing {
 public:
  // `capacity` is a power of two.
  ByteRing(RingCursors& cursors, std::byte* bytes, std::size_t capacity)
      : cursors_(cursors), bytes_(bytes), capacity_(capacity) {}

  std::size_t write(const std::byte* source, std::size_t size) {
    const std::uint64_t at = cursors_.written.load(std::memory_order_relaxed);
    const std::uint64_t used = at - cursors_.taken.load(std::memory_order_acquire);
    const std::size_t count = std::min(size, capacity_ - static_cast<std::size_t>(used));
    const std::size_t begin = static_cast<std::size_t>(at) & (capacity_ - 1);
    const std::size_t first = std::min(count, capacity_ - begin);
    std::memcpy(bytes_ + begin, source, first);
    std::memcpy(bytes_, source + first, count - first);
    cursors_.written.store(at + count, std::memory_order_release);
    return count;
  }

  std::size_t read(std::byte* target, std::size_t size) {
    const std::uint64_t at = cursors_.taken.load(std::memory_order_relaxed);
    const std::size_t count = std::min(size, readable());
    const std::size_t begin = static_cast<std::size_t>(at) & (capacity_ - 1);
    const std::size_t first = std::min(count, capacity_ - begin);
    std::memcpy(target, bytes_ + begin, first);
    std::memcpy(target + first, bytes_, count - first);
    cursors_.taken.store(at + count, std::memory_order_release);
    return count;
  }

  std::size_t readable() const {
    return static_cast<std::size_t>(cursors_.written.load(std::memory_order_acquire) -
                                    cursors_.taken.load(std::memory_order_relaxed));
  }

 private:
  RingCursors& cursors_;
  std::byte* bytes_;
  std::size_t capacity_;
};

}  // namespace paceline::base
