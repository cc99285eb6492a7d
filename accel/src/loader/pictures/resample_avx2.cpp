// SPDX-License-Identifier: Apache-2.0
// The passes with AVX2. One instruction multiplies two pairs of 16-bit numbers and adds the
// products; none is as fast for 32-bit numbers. So a weight is split into high * 2^15 + low, and
// each part is summed separately. The sums may wrap, but the final result does not.
#include <immintrin.h>

#include <cstring>

#include "loader/pictures/resample.hpp"

namespace paceline::loader {
namespace {

constexpr int kLowBits = 15;
constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);
constexpr std::size_t kGroup = 4;                // source pixels of one step
constexpr std::size_t kPacked = 2 * 4 * kGroup;  // numbers of a group: low parts, then high parts

std::int16_t low_of(std::int32_t weight) {
  return static_cast<std::int16_t>(weight & ((1 << kLowBits) - 1));
}
std::int16_t high_of(std::int32_t weight) { return static_cast<std::int16_t>(weight >> kLowBits); }

std::size_t groups_of(const Axis& axis, std::size_t pixel) {
  return (static_cast<std::size_t>(axis.reach[pixel].count) + kGroup - 1) / kGroup;
}

// Each group gets two vectors: weights 0 and 1 for each of four channels, then weights 2 and 3.
void prepare(Axis& axis) {
  axis.packed.resize(axis.weights.size() / kGroup * kPacked);
  std::int16_t* to = axis.packed.data();
  for (std::size_t at = 0; at < axis.weights.size(); at += kGroup, to += kPacked) {
    const std::int32_t* weights = axis.weights.data() + at;
    for (std::size_t i = 0; i < kPacked / 2; ++i) {
      const std::int32_t weight = weights[i / 8 * 2 + i % 2];
      to[i] = low_of(weight);
      to[i + kPacked / 2] = high_of(weight);
    }
  }
}

__m128i folded(__m256i low, __m256i high) {
  const __m256i sum = _mm256_add_epi32(low, _mm256_slli_epi32(high, kLowBits));
  const __m128i both = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  return _mm_srai_epi32(_mm_add_epi32(both, _mm_set1_epi32(kHalf)), kWeightBits);
}

template <std::size_t kRows>
void horizontal_rows(const Axis& axis, const std::uint8_t* source, std::size_t source_stride,
                     std::uint8_t* target, std::size_t target_stride) {
  constexpr char kNone = -1;
  const __m256i pairs = _mm256_setr_epi8(0, kNone, 4, kNone, 1, kNone, 5, kNone, 2, kNone, 6, kNone,
                                         3, kNone, 7, kNone, 8, kNone, 12, kNone, 9, kNone, 13,
                                         kNone, 10, kNone, 14, kNone, 11, kNone, 15, kNone);
  for (std::size_t pixel = 0; pixel < axis.reach.size(); ++pixel) {
    const std::uint8_t* from = source + 4 * static_cast<std::size_t>(axis.reach[pixel].first);
    const std::int16_t* weights = axis.packed.data() + pixel * axis.width / kGroup * kPacked;
    __m256i low[kRows];
    __m256i high[kRows];
    for (std::size_t row = 0; row < kRows; ++row) low[row] = high[row] = _mm256_setzero_si256();
    for (std::size_t group = groups_of(axis, pixel); group > 0;
         --group, from += 4 * kGroup, weights += kPacked) {
      const __m256i low_weights = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights));
      const __m256i high_weights =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + kPacked / 2));
      for (std::size_t row = 0; row < kRows; ++row) {
        const __m128i four =
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + row * source_stride));
        const __m256i wide = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(four), pairs);
        low[row] = _mm256_add_epi32(low[row], _mm256_madd_epi16(wide, low_weights));
        high[row] = _mm256_add_epi32(high[row], _mm256_madd_epi16(wide, high_weights));
      }
    }
    for (std::size_t row = 0; row < kRows; ++row) {
      const __m128i words = _mm_packs_epi32(folded(low[row], high[row]), _mm_setzero_si128());
      const std::int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
      std::memcpy(target + row * target_stride + 4 * pixel, &bytes, sizeof bytes);
    }
  }
}

void horizontal(const Axis& axis, const std::uint8_t* source, std::size_t source_stride,
                std::size_t rows, std::uint8_t* target, std::size_t target_stride) {
  std::size_t row = 0;
  for (; row + 4 <= rows; row += 4)
    horizontal_rows<4>(axis, source + row * source_stride, source_stride,
                       target + row * target_stride, target_stride);
  for (; row < rows; ++row)
    horizontal_rows<1>(axis, source + row * source_stride, source_stride,
                       target + row * target_stride, target_stride);
}

__m256i both(std::int16_t first, std::int16_t second) {
  return _mm256_set1_epi32(static_cast<std::int32_t>(
      static_cast<std::uint32_t>(static_cast<std::uint16_t>(second)) << 16 |
      static_cast<std::uint16_t>(first)));
}

__m128i words_of(__m256i low, __m256i high) {
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(low, _mm256_slli_epi32(high, kLowBits)),
                                       _mm256_set1_epi32(kHalf));
  const __m256i shifted = _mm256_srai_epi32(sum, kWeightBits);
  return _mm_packs_epi32(_mm256_castsi256_si128(shifted), _mm256_extracti128_si256(shifted, 1));
}

void vertical(const Axis& axis, std::size_t pixel, const std::uint8_t* source,
              std::size_t source_stride, std::size_t bytes, std::uint8_t* target) {
  const auto count = static_cast<std::size_t>(axis.reach[pixel].count);
  const auto weights = axis.of(pixel);
  source += static_cast<std::size_t>(axis.reach[pixel].first) * source_stride;
  for (std::size_t at = 0; at < bytes; at += 16) {
    __m256i low[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    __m256i high[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (std::size_t i = 0; i < count; i += 2) {
      const bool pair = i + 1 < count;  // else the second weight is 0 and no row is read
      const std::uint8_t* from = source + i * source_stride + at;
      const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
      const __m128i second =
          pair ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + source_stride))
               : _mm_setzero_si128();
      const std::int32_t next = pair ? weights[i + 1] : 0;
      const __m256i low_weights = both(low_of(weights[i]), low_of(next));
      const __m256i high_weights = both(high_of(weights[i]), high_of(next));
      const __m256i wide[2] = {_mm256_cvtepu8_epi16(_mm_unpacklo_epi8(first, second)),
                               _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(first, second))};
      for (int half = 0; half < 2; ++half) {
        low[half] = _mm256_add_epi32(low[half], _mm256_madd_epi16(wide[half], low_weights));
        high[half] = _mm256_add_epi32(high[half], _mm256_madd_epi16(wide[half], high_weights));
      }
    }
    const __m128i result = _mm_packus_epi16(words_of(low[0], high[0]), words_of(low[1], high[1]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target + at), result);
  }
}

}  // namespace

const Resampler kAvx2Resampler = {
    .name = "avx2", .prepare = prepare, .horizontal = horizontal, .vertical = vertical};

}  // namespace paceline::loader
