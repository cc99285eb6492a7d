// SPDX-License-Identifier: Apache-2.0
// The loops themselves. Included by one source per instruction set, each compiled with its own flags and with
// PACELINE_KERNELS defined to the name of its table. Everything is in an unnamed namespace and nothing of the standard library is
// used: an inline function compiled here for AVX-512 must never be the copy that the linker keeps for all.
#include <stdint.h>  // NOLINT(modernize-deprecated-headers): types only

#include "kernels.hpp"
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace paceline::optim {
namespace {

using i64 = std::int64_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;

inline float as_float(u32 bits) { return __builtin_bit_cast(float, bits); }
inline u32 as_bits(float value) { return __builtin_bit_cast(u32, value); }

void from_bf16(const u16* __restrict in, float* __restrict out, i64 count) {
  for (i64 i = 0; i < count; ++i) out[i] = as_float(static_cast<u32>(in[i]) << 16);
}

void to_bf16(const float* __restrict in, u16* __restrict out, i64 count) {
  for (i64 i = 0; i < count; ++i) {
    const u32 bits = as_bits(in[i]);
    const u32 rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const u32 quiet = 0x7fc0U | ((bits >> 16) & 0x8000U);
    out[i] = static_cast<u16>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
  }
}

inline float half_to_float(u16 half) {
  const u32 sign = static_cast<u32>(half & 0x8000U) << 16;
  const u32 rest = static_cast<u32>(half & 0x7fffU);
  // Normal numbers by moving the exponent; infinities and NaN get the rest of it; subnormal ones by a subtraction that rounds nothing.
  const u32 moved = (rest << 13) + (112U << 23);
  const u32 special = moved + (112U << 23);
  const float small = as_float((rest << 13) + (113U << 23)) - as_float(113U << 23);
  const u32 quiet = rest > 0x7c00U ? 0x00400000U : 0U;
  const u32 bits = rest >= 0x7c00U ? (special | quiet) : rest < 0x0400U ? as_bits(small) : moved;
  return as_float(bits | sign);
}

inline u16 float_to_half(float value) {
  const u32 bits = as_bits(value);
  const u32 sign = (bits >> 16) & 0x8000U;
  const u32 rest = bits & 0x7fffffffU;
  const u32 normal = (rest + 0xfffU + ((rest >> 13) & 1U) - (112U << 23)) >> 13;
  // Adding 0.5 leaves the rounded subnormal in the low bits.
  const u32 small = as_bits(as_float(rest) + 0.5F) - as_bits(0.5F);
  u32 half = rest < (113U << 23) ? small : normal;
  half = rest >= 0x477ff000U ? 0x7c00U : half;  // what rounds to 65536 and above
  half = rest > 0x7f800000U ? 0x7e00U | ((rest >> 13) & 0x3ffU) : half;
  return static_cast<u16>(half | sign);
}

void from_f16(const u16* __restrict in, float* __restrict out, i64 count) {
  i64 i = 0;
#if defined(__F16C__)
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
#endif
  for (; i < count; ++i) out[i] = half_to_float(in[i]);
}

void to_f16(const float* __restrict in, u16* __restrict out, i64 count) {
  i64 i = 0;
#if defined(__F16C__)
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
#endif
  for (; i < count; ++i) out[i] = float_to_half(in[i]);
}

// Written with vectors: as a plain loop over lanes, compilers keep the sums in memory, and this pass is bound by that.
#if defined(__AVX512F__)
constexpr int kWidth = 8;
#elif defined(__AVX2__)
constexpr int kWidth = 4;
#else
constexpr int kWidth = 2;
#endif
using Doubles [[gnu::vector_size(kWidth * sizeof(double))]] = double;
using Floats [[gnu::vector_size(kWidth * sizeof(float))]] = float;

void squares(const float* __restrict in, float factor, i64 count, double* __restrict sums) {
  constexpr int kVectors = kLanes / kWidth;
  Doubles lane[kVectors];
  __builtin_memcpy(&lane, sums, sizeof lane);
  i64 i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int j = 0; j < kVectors; ++j) {
      Floats values;
      __builtin_memcpy(&values, in + i + j * kWidth, sizeof values);
      const Doubles wide = __builtin_convertvector(values * factor, Doubles);
      lane[j] += wide * wide;
    }
  }
  __builtin_memcpy(sums, &lane, sizeof lane);
  for (int j = 0; i < count; ++i, ++j) {
    const auto value = static_cast<double>(in[i] * factor);
    sums[j] += value * value;
  }
}

inline float blend(float old, float value, Blend by) { return (by.from_old ? old : value) + (value - old) * by.factor; }

template <bool kAmsgrad, bool kDecayInGradient>
void adam_loop(float* __restrict p, const float* __restrict g, float* __restrict m, float* __restrict v,
               float* __restrict maximum, i64 count, const AdamConstants c) {
  for (i64 i = 0; i < count; ++i) {
    float gradient = g[i] * c.grad_multiplier;
    const float kept = p[i] * c.keep;
    if constexpr (kDecayInGradient) gradient += c.decay * p[i];
    const float moment = blend(m[i], gradient, c.first);
    const float variance = blend(v[i], gradient * gradient, c.second);
    m[i] = moment;
    v[i] = variance;
    float spread = variance;
    if constexpr (kAmsgrad) {
      // Written so that a NaN stays one, as the framework's maximum does.
      spread = maximum[i] > variance ? maximum[i] : variance;
      spread = maximum[i] == maximum[i] ? spread : maximum[i];
      maximum[i] = spread;
    }
    p[i] = kept - c.rate * (moment / (__builtin_sqrtf(spread) * c.second_correction + c.eps));
  }
}

void adam(float* p, const float* g, float* m, float* v, float* maximum, i64 count, const AdamConstants& c) {
  const bool in_gradient = c.decay != 0.0F;
  if (maximum != nullptr) {
    in_gradient ? adam_loop<true, true>(p, g, m, v, maximum, count, c)
                : adam_loop<true, false>(p, g, m, v, maximum, count, c);
  } else {
    in_gradient ? adam_loop<false, true>(p, g, m, v, maximum, count, c)
                : adam_loop<false, false>(p, g, m, v, maximum, count, c);
  }
}

// The update of LAMB before the layer's factor; computed twice rather than kept, which costs less than memory would.
inline float lamb_update(float p, float m, float v, const AdamConstants& c) {
  const float denominator = __builtin_sqrtf(v) * c.second_correction + c.eps;
  return m * c.first_correction / denominator + c.decay * p;
}

void lamb_moments(const float* __restrict p, const float* __restrict g, float* __restrict m, float* __restrict v,
                  i64 count, const AdamConstants& constants, double* __restrict param_sums,
                  double* __restrict update_sums) {
  const AdamConstants c = constants;
  float update[kTile];
  for (i64 i = 0; i < count; ++i) {
    const float gradient = g[i] * c.grad_multiplier;
    const float moment = blend(m[i], gradient, c.first);
    const float variance = blend(v[i], gradient * gradient, c.second);
    m[i] = moment;
    v[i] = variance;
    update[i] = lamb_update(p[i], moment, variance, c);
  }
  squares(p, 1.0F, count, param_sums);
  squares(update, 1.0F, count, update_sums);
}

void lamb_apply(float* __restrict p, const float* __restrict m, const float* __restrict v, i64 count,
                const AdamConstants& constants) {
  const AdamConstants c = constants;
  for (i64 i = 0; i < count; ++i) p[i] -= c.rate * lamb_update(p[i], m[i], v[i], c);
}

enum class Momentum { kNone, kFirst, kRunning };

template <Momentum kMomentum, bool kNesterov>
void sgd_loop(float* __restrict p, const float* __restrict g, float* __restrict buffer, i64 count,
              const SgdConstants c) {
  for (i64 i = 0; i < count; ++i) {
    float update = g[i] * c.grad_multiplier;
    update = (update + c.decay * p[i]) * c.trust;
    if constexpr (kMomentum != Momentum::kNone) {
      float held = update;
      if constexpr (kMomentum == Momentum::kRunning) held = buffer[i] * c.momentum + update * c.entering;
      buffer[i] = held;
      update = kNesterov ? update + held * c.momentum : held;
    }
    p[i] -= c.rate * update;
  }
}

void sgd(float* p, const float* g, float* buffer, i64 count, const SgdConstants& c) {
  if (buffer == nullptr) {
    sgd_loop<Momentum::kNone, false>(p, g, buffer, count, c);
  } else if (c.first) {
    c.nesterov ? sgd_loop<Momentum::kFirst, true>(p, g, buffer, count, c)
               : sgd_loop<Momentum::kFirst, false>(p, g, buffer, count, c);
  } else {
    c.nesterov ? sgd_loop<Momentum::kRunning, true>(p, g, buffer, count, c)
               : sgd_loop<Momentum::kRunning, false>(p, g, buffer, count, c);
  }
}

}  // namespace

#define PACELINE_STRING_OF(name) #name
#define PACELINE_STRING(name) PACELINE_STRING_OF(name)
const Kernels PACELINE_KERNELS{PACELINE_STRING(PACELINE_LEVEL),
                               from_bf16,
                               to_bf16,
                               from_f16,
                               to_f16,
                               squares,
                               adam,
                               lamb_moments,
                               lamb_apply,
                               sgd};

}  // namespace paceline::optim
