// SPDX-License-Identifier: Apache-2.0
// Loops over arrays that a source compiles for one instruction set, with flags of its own.
// Everything is in an unnamed namespace and uses no function of the standard library. So the linker
// never uses a copy compiled for AVX-512 on other processors.
#pragma once

#include <cstdint>

namespace paceline::base {
namespace {

using i64 = std::int64_t;
using u16 = std::uint16_t;

// Loops over several arrays prefetch once for each block of kBlock elements, and kAhead elements
// ahead. The processor itself prefetches only within a page. Behind the end of an array lies most
// often the next tile; elsewhere the prefetch is harmless.
constexpr i64 kBlock = 64;
constexpr i64 kAhead = 512;

template <typename... Arrays>
void fetch(const Arrays*... arrays) {
  constexpr i64 kLine = 64;  // bytes of a cache line
  const auto ask = [](const auto* array) {
    for (i64 i = 0; i < kBlock; i += kLine / static_cast<i64>(sizeof *array))
      __builtin_prefetch(array + kAhead + i);
  };
  (ask(arrays), ...);
  // GCC takes a function that only prefetches for one without effect, and would remove its calls.
  __asm__ volatile("");
}

// The arrays of a loop do not overlap.
#if defined(__clang__)
#define PACELINE_APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define PACELINE_APART _Pragma("GCC ivdep")
#endif

// Calls element(i) for all elements, in a loop for each block. The compiler knows the length of a
// block; without that, half of the gain is lost.
template <typename Fetch, typename Element>
void each(i64 count, const Fetch& fetch_at, const Element& element) {
  i64 begin = 0;
  for (; begin + kBlock <= count; begin += kBlock) {
    fetch_at(begin);
    PACELINE_APART
    for (i64 i = begin; i < begin + kBlock; ++i) element(i);
  }
  for (i64 i = begin; i < count; ++i) element(i);
}

}  // namespace
}  // namespace paceline::base
