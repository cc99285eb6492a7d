// SPDX-License-Identifier: Apache-2.0
// RingView: a rank's ring mapped read-only, after everything that could hurt a reader was checked once: the seals (a ring that can shrink would
// SIGBUS us), the size, the magic, the ABI and the geometry. The geometry is copied out: the writer can change the header at any time, and must
// not be able to move us out of the map.
//
// Ownership: owns the mapping; the descriptor is not kept. Movable. Reads are safe from any thread. Failure: an Error that says what was wrong.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "common/base/error.hpp"
#include "paceline/step_record.h"

namespace paceline::telemetry {

class RingView {
 public:
  static Result<RingView> map(int fd);

  RingView(RingView&& other) noexcept;
  RingView& operator=(RingView&& other) noexcept;
  RingView(const RingView&) = delete;
  RingView& operator=(const RingView&) = delete;
  ~RingView();

  std::uint32_t capacity() const { return capacity_; }
  /// Records ever published, as the writer says now.
  std::uint64_t write_index() const;
  /// Copies slot `number % capacity`; false when it does not hold record `number` whole (being written, overwritten, torn).
  bool copy(std::uint64_t number, paceline_step_record& record) const;
  /// CLOCK_MONOTONIC of the writer's last sign of life; 0 after an orderly end.
  std::uint64_t heartbeat_ns() const;
  /// What the rank is doing now; false when the writer did not let us read it whole in a few tries.
  bool live(paceline_live_state& state) const;
  /// Claims of the writer about itself, copied once.
  const paceline_ring_header& claims() const { return claims_; }
  /// True when `fd` is the memfd that this view was mapped from.
  bool is_same_file(int fd) const;

 private:
  RingView() = default;
  void unmap();

  const std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t header_bytes_ = 0;
  std::size_t record_bytes_ = 0;
  std::uint32_t capacity_ = 0;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  paceline_ring_header claims_{};
};

}  // namespace paceline::telemetry
