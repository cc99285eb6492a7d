// SPDX-License-Identifier: Apache-2.0
// RingReader: one reader's place in a ring. Several readers of one ring each have their own cursor and gap count and never disturb the writer.
//
// Ownership: owns its RingView. Not thread-safe. Nothing fails: what cannot be read is counted (`gaps`), what is read but absurd too (`invalid`).
#pragma once

#include <cstdint>
#include <functional>

#include "common/telemetry/ring_view.hpp"

namespace paceline::telemetry {

class RingReader {
 public:
  explicit RingReader(RingView view);

  /// Reads every record published since the last call, at most one ring's capacity, oldest first.
  void poll(const std::function<void(const paceline_step_record&)>& take);

  const RingView& view() const { return view_; }
  /// Records that were overwritten or torn before we read them.
  std::uint64_t gaps() const { return gaps_; }
  std::uint64_t invalid() const { return invalid_; }

 private:
  RingView view_;
  std::uint64_t cursor_ = 0;
  std::uint64_t gaps_ = 0;
  std::uint64_t invalid_ = 0;
};

}  // namespace paceline::telemetry
