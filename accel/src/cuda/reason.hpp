// SPDX-License-Identifier: Apache-2.0
// How a function of the C ABI answers why a device has no kernels. Pure; nothing fails.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace paceline::cuda {

// Copies the text into `why`, cut to its size. Returns whether it is empty.
inline bool tell(const std::string& problem, char* why, std::uint64_t why_bytes) {
  if (why != nullptr && why_bytes > 0) {
    const auto length = std::min(problem.size(), static_cast<std::size_t>(why_bytes) - 1);
    std::memcpy(why, problem.data(), length);
    why[length] = '\0';
  }
  return problem.empty();
}

}  // namespace paceline::cuda
