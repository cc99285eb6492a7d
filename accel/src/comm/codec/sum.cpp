// SPDX-License-Identifier: Apache-2.0
#include "comm/codec/sum.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/halves.hpp"

namespace paceline::comm {
namespace {

constexpr std::size_t kBlock = 1024;  // elements; small enough to stay in the L1 cache

// `Wide` is the type of the sums: the type itself, or an unsigned one for integers, whose sums
// wrap.
template <typename Wide>
void sum_plain(std::byte* target, std::span<const std::byte* const> sources, std::size_t count) {
  std::array<Wide, kBlock> total;
  std::array<Wide, kBlock> next;
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t n = std::min(kBlock, count - at);
    std::memcpy(total.data(), sources[0] + at * sizeof(Wide), n * sizeof(Wide));
    for (const std::byte* source : sources.subspan(1)) {
      std::memcpy(next.data(), source + at * sizeof(Wide), n * sizeof(Wide));
      for (std::size_t i = 0; i < n; ++i) total[i] += next[i];
    }
    std::memcpy(target + at * sizeof(Wide), total.data(), n * sizeof(Wide));
  }
}

using Widen = void (*)(const std::uint16_t*, float*, std::int64_t);
using Narrow = void (*)(const float*, std::uint16_t*, std::int64_t);

void sum_halves(Widen widen, Narrow narrow, std::byte* target,
                std::span<const std::byte* const> sources, std::size_t count) {
  std::array<std::uint16_t, kBlock> halves;
  std::array<float, kBlock> total;
  std::array<float, kBlock> next;
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t n = std::min(kBlock, count - at);
    const auto wide = static_cast<std::int64_t>(n);
    std::memcpy(halves.data(), sources[0] + at * 2, n * 2);
    widen(halves.data(), total.data(), wide);
    for (const std::byte* source : sources.subspan(1)) {
      std::memcpy(halves.data(), source + at * 2, n * 2);
      widen(halves.data(), next.data(), wide);
      for (std::size_t i = 0; i < n; ++i) total[i] += next[i];
    }
    narrow(total.data(), halves.data(), wide);
    std::memcpy(target + at * 2, halves.data(), n * 2);
  }
}

}  // namespace

bool is_type(std::uint32_t number) { return number <= static_cast<std::uint32_t>(Type::kI64); }

std::size_t size_of(Type type) {
  constexpr std::array<std::size_t, 6> kSizes{4, 8, 2, 2, 4, 8};
  return kSizes[static_cast<std::size_t>(type)];
}

const char* name_of(Type type) {
  constexpr std::array<const char*, 6> kNames{"fp32", "fp64", "fp16", "bf16", "int32", "int64"};
  return kNames[static_cast<std::size_t>(type)];
}

void sum(Type type, std::byte* target, std::span<const std::byte* const> sources,
         std::size_t count) {
  const base::Halves& halves = base::best_halves();
  switch (type) {
    case Type::kF32: return sum_plain<float>(target, sources, count);
    case Type::kF64: return sum_plain<double>(target, sources, count);
    case Type::kF16: return sum_halves(halves.from_f16, halves.to_f16, target, sources, count);
    case Type::kBf16: return sum_halves(halves.from_bf16, halves.to_bf16, target, sources, count);
    case Type::kI32: return sum_plain<std::uint32_t>(target, sources, count);
    case Type::kI64: return sum_plain<std::uint64_t>(target, sources, count);
  }
}

}  // namespace paceline::comm
