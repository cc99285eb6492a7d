// SPDX-License-Identifier: Apache-2.0
// A 64-bit digest of memory, which tells whether bytes changed. It does not resist an attacker.
// Four lanes let it run at about the rate of memory. Pure.
#pragma once

#include <cstdint>
#include <cstring>

namespace paceline::loader {

inline std::uint64_t digest(const void* data, std::uint64_t size, std::uint64_t seed) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;
  const auto mix = [](std::uint64_t lane, std::uint64_t word) {
    // A bijection of the lane for each word, and of the word for each lane.
    lane = (lane ^ word) * kOdd;
    return lane ^ lane >> 29;
  };
  std::uint64_t lanes[4] = {seed ^ kOdd, seed + kOdd, ~seed, seed * kOdd + size};
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint64_t left = size;
  for (; left >= 32; left -= 32, at += 32) {
    std::uint64_t words[4];
    std::memcpy(words, at, sizeof words);
    for (int i = 0; i < 4; ++i) lanes[i] = mix(lanes[i], words[i]);
  }
  std::uint64_t tail[4] = {};
  std::memcpy(tail, at, left);
  std::uint64_t result = size;
  for (int i = 0; i < 4; ++i) result = mix(result, mix(lanes[i], tail[i]));
  return result;
}

}  // namespace paceline::loader
