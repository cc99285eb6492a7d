// SPDX-License-Identifier: Apache-2.0
#include "comm/codec/coding.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "base/halves.hpp"
#include "comm/codec/coding_formulas.hpp"

namespace paceline::comm {
namespace {

constexpr std::size_t kBlock = 1024;   // values that are converted to halves at a time
constexpr std::size_t kPairBytes = 8;  // an index and a value

void put(std::byte* at, const auto& value) { std::memcpy(at, &value, sizeof value); }
template <typename T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Compares the values' bits as integers, which vectorizes. NaN and infinity are above all finite
// values.
std::uint32_t largest(const float* values, std::size_t count) {
  std::int32_t most = 0;
  for (std::size_t i = 0; i < count; ++i)
    most = std::max(most, static_cast<std::int32_t>(size_bits(values[i])));
  return static_cast<std::uint32_t>(most);
}

void encode_halves(bool brain, const float* values, float* residual, std::byte* coded,
                   std::uint64_t count) {
  const base::Halves& loops = base::best_halves();
  const auto narrow = brain ? loops.to_bf16 : loops.to_f16;
  const auto widen = brain ? loops.from_bf16 : loops.from_f16;
  const float most = brain ? kMostBf16 : kMostF16;
  std::array<float, kBlock> wanted;
  std::array<float, kBlock> cut;
  std::array<std::uint16_t, kBlock> halves;
  for (std::uint64_t at = 0; at < count; at += kBlock) {
    const std::size_t n = std::min<std::uint64_t>(kBlock, count - at);
    for (std::size_t i = 0; i < n; ++i) {
      wanted[i] = values[at + i] + residual[at + i];
      cut[i] = cut_to(most, wanted[i]);
    }
    narrow(cut.data(), halves.data(), static_cast<std::int64_t>(n));
    std::memcpy(coded + at * 2, halves.data(), n * 2);
    widen(halves.data(), cut.data(), static_cast<std::int64_t>(n));
    for (std::size_t i = 0; i < n; ++i) residual[at + i] = left_of(wanted[i], cut[i]);
  }
}

void decode_halves(bool brain, const std::byte* coded, float* values, std::uint64_t count) {
  const base::Halves& loops = base::best_halves();
  const auto widen = brain ? loops.from_bf16 : loops.from_f16;
  std::array<std::uint16_t, kBlock> halves;
  for (std::uint64_t at = 0; at < count; at += kBlock) {
    const std::size_t n = std::min<std::uint64_t>(kBlock, count - at);
    std::memcpy(halves.data(), coded + at * 2, n * 2);
    widen(halves.data(), values + at, static_cast<std::int64_t>(n));
  }
}

void encode_int8(const float* values, float* residual, std::byte* coded, std::uint64_t count) {
  std::array<float, kInt8Block> wanted;
  std::array<std::int8_t, kInt8Block> small;
  for (std::uint64_t at = 0; at < count; at += kInt8Block) {
    const std::size_t n = std::min<std::uint64_t>(kInt8Block, count - at);
    for (std::size_t i = 0; i < n; ++i) wanted[i] = values[at + i] + residual[at + i];
    const Int8Scale by = int8_scale(largest(wanted.data(), n));
    for (std::size_t i = 0; i < n; ++i) {
      const int one = int8_of(wanted[i], by);
      small[i] = static_cast<std::int8_t>(one);
      residual[at + i] = int8_left(wanted[i], one, by);
    }
    put(coded, by.scale);
    std::memcpy(coded + sizeof by.scale, small.data(), n);
    coded += sizeof by.scale + n;
  }
}

void decode_int8(const std::byte* coded, float* values, std::uint64_t count) {
  std::array<std::int8_t, kInt8Block> small;
  for (std::uint64_t at = 0; at < count; at += kInt8Block) {
    const std::size_t n = std::min<std::uint64_t>(kInt8Block, count - at);
    const auto scale = get<float>(coded);
    std::memcpy(small.data(), coded + sizeof scale, n);
    for (std::size_t i = 0; i < n; ++i) values[at + i] = int8_value(small[i], scale);
    coded += sizeof scale + n;
  }
}

std::uint64_t kept(std::uint32_t keep, std::uint64_t count) {
  return std::min(count, std::max<std::uint64_t>(1, (count * keep + kMillion - 1) / kMillion));
}

void gather_momentum(float momentum, const float* values, float* residual, float* gathered,
                     std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    gathered[i] = momentum * gathered[i] + values[i];
    residual[i] += gathered[i];
  }
}

// Encodes the largest values of `residual`, then sets them to 0 there, and in `masked` if it is
// given.
void encode_top(std::uint32_t keep, float* residual, float* masked, std::byte* coded,
                std::uint64_t count) {
  if (count == 0) return;
  const auto clear = [&](std::uint64_t i) {
    residual[i] = 0.0F;
    if (masked != nullptr) masked[i] = 0.0F;
  };
  const std::uint64_t k = kept(keep, count);
  std::vector<std::uint32_t> sizes(count);
  std::transform(residual, residual + count, sizes.begin(), size_bits);
  const auto place = sizes.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(sizes.begin(), place, sizes.end(), std::greater<>());
  const std::uint32_t least = *place;
  // Of equally large values, take the first ones.
  auto equal = k - static_cast<std::uint64_t>(std::count_if(
                       sizes.begin(), place, [&](std::uint32_t size) { return size > least; }));
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint32_t size = size_bits(residual[i]);
    if (size < least || (size == least && equal == 0)) {
      if (size >= kInfinite)
        clear(i);  // enough values that are not finite are sent already; drop this one
      continue;
    }
    if (size == least) --equal;
    put(coded, static_cast<std::uint32_t>(i));
    put(coded + sizeof(std::uint32_t), residual[i]);
    coded += kPairBytes;
    clear(i);
  }
}

void add_top(std::uint32_t keep, const std::byte* coded, float* values, std::uint64_t count) {
  if (count == 0) return;
  const std::uint64_t k = kept(keep, count);
  for (std::uint64_t i = 0; i < k; ++i) {
    const auto index = get<std::uint32_t>(coded + i * kPairBytes);
    if (index < count) values[index] += get<float>(coded + i * kPairBytes + sizeof index);
  }
}

// Sums a block in the order that coding_formulas.hpp defines.
double sum_of_sizes(const float* values, std::size_t count) {
  double sum = 0;
  for (std::size_t at = 0; at < count; at += kSignGroup) {
    std::array<double, kSignLanes> lanes{};
    const std::size_t end = std::min<std::size_t>(count, at + kSignGroup);
    for (std::size_t begin = at; begin < end; begin += kSignLanes) {
      const std::size_t n = std::min<std::size_t>(kSignLanes, end - begin);
      for (std::size_t lane = 0; lane < n; ++lane) lanes[lane] += std::fabs(values[begin + lane]);
    }
    for (std::size_t half = kSignLanes / 2; half > 0; half /= 2)
      for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    sum += lanes[0];
  }
  return sum;
}

void encode_signs(const float* values, float* residual, std::byte* coded, std::uint64_t count) {
  std::array<std::uint8_t, kSignBlock / 8> signs;
  for (std::uint64_t at = 0; at < count; at += kSignBlock) {
    const std::size_t n = std::min<std::uint64_t>(kSignBlock, count - at);
    for (std::size_t i = 0; i < n; ++i) residual[at + i] += values[at + i];
    const float scale = sign_scale(sum_of_sizes(residual + at, n), static_cast<int>(n));
    signs.fill(0);
    for (std::size_t i = 0; i < n; ++i) {
      const unsigned bit = is_negative(residual[at + i]) ? 1U << (i % 8) : 0U;
      signs[i / 8] = static_cast<std::uint8_t>(signs[i / 8] | bit);
      residual[at + i] = sign_left(residual[at + i], scale);
    }
    put(coded, scale);
    const std::size_t bytes = (n + 7) / 8;
    std::memcpy(coded + sizeof scale, signs.data(), bytes);
    coded += sizeof scale + bytes;
  }
}

void add_signs(const std::byte* coded, float* values, std::uint64_t count) {
  for (std::uint64_t at = 0; at < count; at += kSignBlock) {
    const std::size_t n = std::min<std::uint64_t>(kSignBlock, count - at);
    const auto scale = get<float>(coded);
    coded += sizeof scale;
    for (std::size_t i = 0; i < n; ++i)
      values[at + i] +=
          sign_value((static_cast<unsigned>(coded[i / 8]) >> (i % 8) & 1U) != 0, scale);
    coded += (n + 7) / 8;
  }
}

}  // namespace

bool is_coding(const Coding& coding) {
  const bool some = coding.keep >= 1 && coding.keep <= kMillion;
  if (coding.codec == Codec::kDgc) return some && coding.momentum < kThousand;
  if (coding.codec == Codec::kTopK) return some && coding.momentum == 0;
  return coding.codec >= Codec::kF16 && coding.codec <= Codec::kOneBit && coding.keep == 0 &&
         coding.momentum == 0;
}

const char* name_of(Codec codec) {
  constexpr std::array<const char*, 7> kNames{"none",  "fp16",  "bf16", "int8",
                                              "top-k", "1-bit", "dgc"};
  const auto number = static_cast<std::size_t>(codec);
  return number < kNames.size() ? kNames[number] : "unknown";
}

bool recoded_on_the_way(Codec codec) { return codec < Codec::kTopK; }

Grain grain_of(Codec codec) {
  if (codec == Codec::kInt8) return {.values = kInt8Block, .bytes = sizeof(float) + kInt8Block};
  return {.values = 1, .bytes = 2};
}

std::size_t coded_bytes(const Coding& coding, std::uint64_t count) {
  switch (coding.codec) {
    case Codec::kF16:
    case Codec::kBf16: return count * 2;
    case Codec::kInt8: return count + (count + kInt8Block - 1) / kInt8Block * sizeof(float);
    case Codec::kTopK:
    case Codec::kDgc: return count == 0 ? 0 : kept(coding.keep, count) * kPairBytes;
    case Codec::kOneBit:
      return (count + 7) / 8 + (count + kSignBlock - 1) / kSignBlock * sizeof(float);
    case Codec::kNone: break;
  }
  return count * sizeof(float);
}

void encode(const Coding& coding, const float* values, float* residual, std::byte* coded,
            std::uint64_t count) {
  switch (coding.codec) {
    case Codec::kF16: return encode_halves(false, values, residual, coded, count);
    case Codec::kBf16: return encode_halves(true, values, residual, coded, count);
    case Codec::kInt8: return encode_int8(values, residual, coded, count);
    case Codec::kTopK:
      for (std::uint64_t i = 0; i < count; ++i) residual[i] += values[i];
      return encode_top(coding.keep, residual, nullptr, coded, count);
    case Codec::kDgc:
      gather_momentum(static_cast<float>(coding.momentum) / kThousand, values, residual,
                      residual + count, count);
      return encode_top(coding.keep, residual, residual + count, coded, count);
    case Codec::kOneBit: return encode_signs(values, residual, coded, count);
    case Codec::kNone: std::memcpy(coded, values, count * sizeof(float));
  }
}

void decode(const Coding& coding, const std::byte* coded, float* values, std::uint64_t count) {
  switch (coding.codec) {
    case Codec::kF16: return decode_halves(false, coded, values, count);
    case Codec::kBf16: return decode_halves(true, coded, values, count);
    case Codec::kInt8: return decode_int8(coded, values, count);
    case Codec::kTopK:
    case Codec::kDgc:
    case Codec::kOneBit:
      std::fill_n(values, count, 0.0F);
      return decode_add(coding, coded, values, count);
    case Codec::kNone: std::memcpy(values, coded, count * sizeof(float));
  }
}

void decode_add(const Coding& coding, const std::byte* coded, float* values, std::uint64_t count) {
  if (coding.codec == Codec::kTopK || coding.codec == Codec::kDgc)
    return add_top(coding.keep, coded, values, count);
  if (coding.codec == Codec::kOneBit) return add_signs(coded, values, count);
  std::array<float, kBlock> block;
  for (std::uint64_t at = 0; at < count; at += kBlock) {
    const std::uint64_t n = std::min<std::uint64_t>(kBlock, count - at);
    decode(coding, coded + coded_bytes(coding, at), block.data(), n);
    for (std::uint64_t i = 0; i < n; ++i) values[at + i] += block[i];
  }
}

void recode(const Coding& coding, const std::byte* received, const float* own, float* residual,
            std::byte* coded, std::uint64_t count) {
  std::array<float, kBlock> block;
  static_assert(kBlock % kInt8Block == 0);
  for (std::uint64_t at = 0; at < count; at += kBlock) {
    const std::uint64_t n = std::min<std::uint64_t>(kBlock, count - at);
    const std::size_t place = coded_bytes(coding, at);
    decode(coding, received + place, block.data(), n);
    for (std::uint64_t i = 0; i < n; ++i) block[i] += own[at + i];
    encode(coding, block.data(), residual + at, coded + place, n);
  }
}

}  // namespace paceline::comm
