// SPDX-License-Identifier: Apache-2.0
// What the loader's exported functions share: the handles behind their opaque types, and how a reason gets out. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "shards.hpp"

struct paceline_shards {
  std::unique_ptr<paceline::loader::Shards> it;
};

namespace paceline::loader {

inline void say(const std::string& text, char* why, std::uint64_t size) {
  if (why == nullptr || size == 0) return;
  const std::size_t count = std::min<std::size_t>(text.size(), size - 1);
  std::memcpy(why, text.data(), count);
  why[count] = '\0';
}

}  // namespace paceline::loader
