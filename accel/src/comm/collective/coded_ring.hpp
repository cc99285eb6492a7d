// SPDX-License-Identifier: Apache-2.0
// How an array goes around a ring in coded form.
//
// FP16, BF16 and Int8 are recoded on the way, as in an all-reduce: each hop decodes what came, adds
// its own values and codes the sum. Finished parts go around once more unchanged. Each rank sends
// 2(n-1)/n of the coded size, and keeps one residual for each value. The other codecs go from every
// rank to every rank and are added up in order at the end. Either way all ranks decode the same
// bytes.
//
// Ownership: a value; the caller owns arrays. Threads: immutable. Nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/codec/coding.hpp"
#include "comm/collective/ring.hpp"

namespace paceline::comm {

class CodedRing {
 public:
  CodedRing(const Coding& coding, std::uint32_t ranks, std::uint32_t position)
      : coding_(coding), ranks_(ranks), position_(position) {}

  const Coding& coding() const { return coding_; }
  // The size of the buffer for an array of `count` values.
  std::size_t bytes(std::uint64_t count) const;
  std::uint64_t steps() const;  // for one array
  // Writes what this rank sends first. Call it before the steps are opened. `own` and `residual`
  // have `count` values.
  void begin(const float* own, float* residual, std::byte* buffer, std::uint64_t count) const;
  void add_steps(std::vector<Step>& steps, const float* own, float* residual, std::byte* buffer,
                 std::uint64_t count, std::uint64_t gate) const;
  // Call it when all data has been received. `sum` may be the same memory as `own`.
  void end(const std::byte* buffer, float* sum, std::uint64_t count) const;

 private:
  // Where each part of the array begins in the buffer. The last entry is the buffer's size.
  std::vector<std::size_t> places(std::uint64_t count) const;

  Coding coding_;
  std::uint32_t ranks_;
  std::uint32_t position_;
};

}  // namespace paceline::comm
