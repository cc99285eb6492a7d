// SPDX-License-Identifier: Apache-2.0
// RingView: a rank's ring, after everything that could hurt a reader was checked once: the seals,
// the kind of memory, the size, the magic, the ABI and the geometry. The geometry is copied out:
// the writer can change the header at any time, and must not be able to move us.
//
// The ring is read with pread, never mapped: a page that the writer never made, or punched out,
// would be made and charged to whoever touches it in a map (a stranger could so fill the memory of
// a reader that serves a whole node), while a read of it is zeros.
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
  /// Records ever published, as the writer says now.
  std::uint64_t write_index() const;
  /// Passes on the records [first, end) that the ring still holds whole, oldest first; returns how
  /// many it did not (being written, overwritten, torn).
  std::uint64_t read(std::uint64_t first, std::uint64_t end,
                     const std::function<void(const paceline_step_record&)>& take) const;
  /// CLOCK_MONOTONIC of the writer's last sign of life; 0 after an orderly end.
  std::uint64_t heartbeat_ns() const;
  /// What the rank is doing now; false when the writer did not let us read it whole in a few tries.
  bool live(paceline_live_state& state) const;
  /// Claims of the writer about itself, copied once.
  const paceline_ring_header& claims() const { return claims_; }
  /// True when `fd` is the memfd that this view reads.
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
