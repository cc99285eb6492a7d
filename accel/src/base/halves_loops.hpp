// SPDX-License-Identifier: Apache-2.0
// The conversions of float16.hpp for whole arrays. One source for each instruction set includes
// this file. Each is compiled with its own flags and defines PACELINE_HALVES as the name of its
// table.
#include "float16.hpp"
#include "halves.hpp"
#include "loops.hpp"
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace paceline::base {
namespace {

void from_bf16(const u16* __restrict in, float* __restrict out, i64 count) {
  each(count, [=](i64 i) { fetch(in + i); }, [=](i64 i) { out[i] = bf16_to_float(in[i]); });
}

void to_bf16(const float* __restrict in, u16* __restrict out, i64 count) {
  each(count, [=](i64 i) { fetch(out + i); }, [=](i64 i) { out[i] = float_to_bf16(in[i]); });
}

void from_f16(const u16* __restrict in, float* __restrict out, i64 count) {
  i64 i = 0;
#if defined(__F16C__)
  for (; i + 8 <= count; i += 8) {
    __builtin_prefetch(in + i + kAhead);
    _mm256_storeu_ps(out + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
  }
#endif
  for (; i < count; ++i) out[i] = half_to_float(in[i]);
}

void to_f16(const float* __restrict in, u16* __restrict out, i64 count) {
  i64 i = 0;
#if defined(__F16C__)
  for (; i + 8 <= count; i += 8) {
    __builtin_prefetch(out + i + kAhead);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (; i < count; ++i) out[i] = float_to_half(in[i]);
}

}  // namespace

const Halves PACELINE_HALVES{from_bf16, to_bf16, from_f16, to_f16};

}  // namespace paceline::base
