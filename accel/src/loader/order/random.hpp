// SPDX-License-Identifier: Apache-2.0
// SplitMix64, seeded anew for each purpose from the numbers that identify it. Orders and
// augmentation depend on its values, so they are the same on every machine and in every release.
//
// Ownership: none. Threads: a value. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace paceline::loader {

class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t epoch, std::uint64_t stream) : state_(seed) {
    state_ = next() ^ epoch;
    state_ = next() ^ stream;
  }

  // Returns a number below `bound`; all are equally likely.
  std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t rest = (0 - bound) % bound;  // values below this would bias the result
    for (;;) {
      const std::uint64_t value = next();
      if (value >= rest) return value % bound;
    }
  }

  // Returns a number of at least 0 and below 1.
  double fraction() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15U;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9U;
    z = (z ^ z >> 27) * 0x94D049BB133111EBU;
    return z ^ z >> 31;
  }

  std::uint64_t state_;
};

template <typename Value>
void permute(std::span<Value> values, Random random) {
  for (std::size_t left = values.size(); left > 1; --left)
    std::swap(values[left - 1], values[random.below(left)]);
}

}  // namespace paceline::loader
