// SPDX-License-Identifier: Apache-2.0
// RingView: a rank's ring, after everything that could hurt a reader was checked once: the seals,
// the kind of memory, the size, the magic, the ABI and the geometry. The geometry is copied,
// because the writer can change the header at any time and must not be able to redirect the reader.
//
// The ring is read with pread and never mapped. If a mapped page does not exist (the writer never
// made it, or punched a hole), touching it creates the page and charges it to the reader. An
// untrusted writer could so fill the memory of an agent that serves a whole node. Reading such a
// page returns zeros.
//
// Ownership: owns a duplicate of the descriptor. Movable. Reads are safe from any thread. Failure:
// an Error that says what was wrong.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "common/base/error.hpp"
#include "common/base/unique_fd.hpp"
#include "paceline/step_record.h"

namespace paceline::telemetry {

class RingView {
 public:
  static Result<RingView> open(int fd);

  std::uint32_t capacity() const { return capacity_; }
  /// The number of records ever published, by the writer's claim.
  std::uint64_t write_index() const;
  /// Passes on the records of [first, end) that the ring still holds whole, oldest first. Returns
  /// how many it does not hold (being written, overwritten, torn).
  std::uint64_t read(std::uint64_t first, std::uint64_t end,
                     const std::function<void(const paceline_step_record&)>& take) const;
  /// CLOCK_MONOTONIC of the writer's last heartbeat; 0 after an orderly end.
  std::uint64_t heartbeat_ns() const;
  /// What the rank is doing now. False if a few tries found no consistent state, because the writer
  /// was changing it.
  bool live(paceline_live_state& state) const;
  /// What the writer may change while it runs: a source of measurement may start late.
  struct Sources {
    std::uint32_t device_kind = PACELINE_DEVICE_UNKNOWN;
    std::uint64_t capabilities = 0;
  };
  Sources sources() const;
  /// The writer's claims about itself, copied once when the ring was taken.
  const paceline_ring_header& claims() const { return claims_; }
  /// True if `fd` is the memfd that this view reads.
  bool is_same_file(int fd) const;

 private:
  RingView() = default;
  bool read_at(std::size_t offset, void* into, std::size_t bytes) const;
  std::uint64_t word_at(std::size_t offset) const;
  std::size_t slot_of(std::uint64_t number) const {
    return header_bytes_ + record_bytes_ * (number % capacity_);
  }

  UniqueFd fd_;
  std::size_t header_bytes_ = 0;
  std::size_t record_bytes_ = 0;
  std::uint32_t capacity_ = 0;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  paceline_ring_header claims_{};
};

}  // namespace paceline::telemetry
