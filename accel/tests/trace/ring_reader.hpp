// SPDX-License-Identifier: Apache-2.0
// The reader's side of step_record.h's protocol, for the tests. Borrows the memory; throws nothing;
// `read` is empty for a record that is being written or was overwritten.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "paceline/step_record.h"

namespace paceline::check {

inline std::uint64_t write_index(const std::byte* ring) {
  return __atomic_load_n(
      reinterpret_cast<const std::uint64_t*>(ring + offsetof(paceline_ring_header, write_index)),
      __ATOMIC_ACQUIRE);
}

inline std::optional<paceline_step_record> read_record(const std::byte* ring,
                                                       std::uint32_t capacity,
                                                       std::uint64_t number) {
  const auto* slot = reinterpret_cast<const std::uint64_t*>(
      ring + PACELINE_HEADER_BYTES + (number % capacity) * PACELINE_RECORD_BYTES);
  if (__atomic_load_n(slot, __ATOMIC_ACQUIRE) != number + 1) return std::nullopt;
  std::uint64_t words[PACELINE_RECORD_BYTES / 8];
  for (std::size_t i = 0; i < PACELINE_RECORD_BYTES / 8; ++i)
    words[i] = __atomic_load_n(slot + i, __ATOMIC_RELAXED);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (__atomic_load_n(slot, __ATOMIC_RELAXED) != number + 1) return std::nullopt;
  paceline_step_record record;
  std::memcpy(&record, words, sizeof(record));
  return record;
}

}  // namespace paceline::check
