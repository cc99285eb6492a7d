// SPDX-License-Identifier: Apache-2.0
// Sums rows of an array of which each rank has only some, by row number. For sparse gradients of
// embedding tables.
//
// Ownership: values. Threads: pure functions. Failure: std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/codec/sum.hpp"

namespace paceline::comm {

struct Sparse {
  std::vector<std::int64_t> indices;  // ascending, without duplicates
  std::vector<std::byte> values;      // `width` elements for each index
};

// Adds up rows with the same index, in input order. Halves are added in fp32 and rounded once.
Sparse merged(std::span<const std::int64_t> indices, const std::byte* values, std::uint64_t width,
              Type type);

}  // namespace paceline::comm
