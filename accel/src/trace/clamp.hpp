// SPDX-License-Identifier: Apache-2.0
// Fits counters into the smaller fields of a step record. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace paceline::trace {

/// `value`, or the largest `To` if it is larger.
template <typename To>
To clamp_to(std::uint64_t value) {
  return static_cast<To>(std::min<std::uint64_t>(value, std::numeric_limits<To>::max()));
}

}  // namespace paceline::trace
