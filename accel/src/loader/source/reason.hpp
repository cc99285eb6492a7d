// SPDX-License-Identifier: Apache-2.0
// How the exported functions hand the reason of a failure to the caller's buffer. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

namespace paceline::loader {

inline void say(const std::string& text, char* why, std::uint64_t size) {
  if (why == nullptr || size == 0) return;
  const std::size_t count = std::min<std::size_t>(text.size(), size - 1);
  std::memcpy(why, text.data(), count);
  why[count] = '\0';
}

}  // namespace paceline::loader
