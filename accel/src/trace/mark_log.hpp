// SPDX-License-Identifier: Apache-2.0
// The newest marks of the host, with the phase that each began. A source that learns afterwards
// when work was launched looks up here which phase launched it.
//
// Not thread-safe; Runtime holds its lock. Nothing is allocated, and nothing fails: the oldest mark
// is overwritten.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "paceline/sources.h"

namespace paceline::trace {

class MarkLog {
 public:
  void add(std::uint64_t ns, std::uint32_t phase) { marks_[count_++ % kMarks] = {ns, phase, 0}; }
  void clear() { count_ = 0; }

  /// Copies at most `most` of the newest marks, the oldest of them first. Returns how many.
  std::uint32_t newest(paceline_mark* out, std::uint32_t most) const {
    const auto size = std::min<std::uint64_t>({most, kMarks, count_});
    for (std::uint64_t i = 0; i < size; ++i) out[i] = marks_[(count_ - size + i) % kMarks];
    return static_cast<std::uint32_t>(size);
  }

 private:
  static constexpr std::uint64_t kMarks = 1024;  // a dozen steps with many micro-batches

  std::array<paceline_mark, kMarks> marks_{};
  std::uint64_t count_ = 0;
};

}  // namespace paceline::trace
