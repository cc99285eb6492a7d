// SPDX-License-Identifier: Apache-2.0
// RingReader: one reader's place in a ring. Several readers of one ring each have their own cursor
// and gap count and never disturb the writer.
//
// Ownership: owns its RingView. Not thread-safe. Nothing fails: what cannot be read is counted
// (`gaps`), what is read but absurd too (`invalid`).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>

#include "common/telemetry/ring/ring_view.hpp"

namespace paceline::telemetry {

class RingReader {
 public:
  /// Begins with record number `start`: earlier ones were counted by somebody else, who also looked
  /// at those before `known`.
  explicit RingReader(RingView view, std::uint64_t start = 0, std::uint64_t known = 0);

  /// Reads what was published since the last call, at most one ring's capacity and the `most`
  /// newest, oldest first. Returns how many it read.
  std::uint64_t poll(const std::function<void(const paceline_step_record&)>& take,
                     std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

  const RingView& view() const { return view_; }
  /// The record to be read next.
  std::uint64_t cursor() const { return cursor_; }
  /// Records that were overwritten, torn, or more than could be taken, before we read them.
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
