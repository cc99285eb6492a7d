// SPDX-License-Identifier: Apache-2.0
// RingReader: the position of one reader in a ring. Several readers of one ring have their own
// positions and gap counts; they never disturb the writer.
//
// Ownership: owns its RingView. Not thread-safe. Nothing fails: records that cannot be read count
// as `gaps`, implausible ones as `invalid`.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>

#include "common/telemetry/ring/ring_view.hpp"

namespace paceline::telemetry {

class RingReader {
 public:
  /// Begins with record number `start`. Another reader has counted the records before `start` and
  /// has seen those before `known`.
  explicit RingReader(RingView view, std::uint64_t start = 0, std::uint64_t known = 0);

  /// Reads the records published since the last call, oldest first: at most one ring's capacity,
  /// and at most the `most` newest. Returns how many it read.
  std::uint64_t poll(const std::function<void(const paceline_step_record&)>& take,
                     std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

  const RingView& view() const { return view_; }
  /// The number of the record to read next.
  std::uint64_t cursor() const { return cursor_; }
  /// Records that were overwritten or torn before they were read, or that exceeded `most`.
  std::uint64_t gaps() const { return gaps_; }
  std::uint64_t invalid() const { return invalid_; }

 private:
  RingView view_;
  std::uint64_t cursor_ = 0;
  std::uint64_t known_ = 0;
  std::uint64_t gaps_ = 0;
  std::uint64_t invalid_ = 0;
};

}  // namespace paceline::telemetry
