// SPDX-License-Identifier: Apache-2.0
// The steps that this process has published, read from its own ring as any reader does
// (step_record.h).
//
// Owns a read-only mapping. Not thread-safe. Failure: a step that is not there (any more) is
// nullopt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "paceline/step_record.h"

namespace paceline::cupti {

class RingSteps {
 public:
  RingSteps() = default;
  RingSteps(const RingSteps&) = delete;
  RingSteps& operator=(const RingSteps&) = delete;
  ~RingSteps() { unmap(); }

  /// Maps the ring of this epoch. False if the process has no such ring.
  bool map(std::uint32_t ring_epoch);
  void unmap();

  std::optional<paceline_step_record> step(std::uint64_t number) const;
  /// Wall times of at most `most` of the newest steps.
  std::vector<std::uint64_t> newest_walls(std::size_t most) const;

 private:
  std::optional<paceline_step_record> record(std::uint64_t index) const;
  std::uint64_t published() const;

  const std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint32_t capacity_ = 0;
  std::uint32_t epoch_ = 0;
};

}  // namespace paceline::cupti
