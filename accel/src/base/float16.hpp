// SPDX-License-Identifier: Apache-2.0
// The bits of a float, and conversion from and to 16-bit floats, one value at a time. It is written
// once. C++ compilers compile it for processors, and nvcc and NVRTC for GPUs, so it includes
// nothing. All compute the same bits. Only the payload of a NaN may differ.
//
// The functions are pure and nothing fails. They are in an unnamed namespace, so that the linker
// never uses a copy compiled for AVX-512 on other processors.
#pragma once

#if defined(__CUDACC__)
#define PACELINE_INLINE __device__ __forceinline__
#else
#define PACELINE_INLINE inline
#endif

namespace paceline::base {

using Bits16 = unsigned short;
using Bits32 = unsigned int;

namespace {

#if defined(__CUDACC__)
PACELINE_INLINE float as_float(Bits32 bits) { return __uint_as_float(bits); }
PACELINE_INLINE Bits32 as_bits(float value) { return __float_as_uint(value); }
#else
PACELINE_INLINE float as_float(Bits32 bits) { return __builtin_bit_cast(float, bits); }
PACELINE_INLINE Bits32 as_bits(float value) { return __builtin_bit_cast(Bits32, value); }
#endif

PACELINE_INLINE float bf16_to_float(Bits16 value) {
  return as_float(static_cast<Bits32>(value) << 16);
}

PACELINE_INLINE Bits16 float_to_bf16(float value) {
  const Bits32 bits = as_bits(value);
  const Bits32 rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const Bits32 quiet = 0x7fc0U | ((bits >> 16) & 0x8000U);
  return static_cast<Bits16>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}

PACELINE_INLINE float half_to_float(Bits16 half) {
  const Bits32 sign = static_cast<Bits32>(half & 0x8000U) << 16;
  const Bits32 rest = static_cast<Bits32>(half & 0x7fffU);
  // Normal numbers: move the exponent. Infinities and NaN: add the rest of the exponent. Subnormal
  // numbers: subtract, which rounds nothing.
  const Bits32 moved = (rest << 13) + (112U << 23);
  const Bits32 special = moved + (112U << 23);
  const float small = as_float((rest << 13) + (113U << 23)) - as_float(113U << 23);
  const Bits32 quiet = rest > 0x7c00U ? 0x00400000U : 0U;
  const Bits32 bits = rest >= 0x7c00U ? (special | quiet) : rest < 0x0400U ? as_bits(small) : moved;
  return as_float(bits | sign);
}

PACELINE_INLINE Bits16 float_to_half(float value) {
  const Bits32 bits = as_bits(value);
  const Bits32 sign = (bits >> 16) & 0x8000U;
  const Bits32 rest = bits & 0x7fffffffU;
  const Bits32 normal = (rest + 0xfffU + ((rest >> 13) & 1U) - (112U << 23)) >> 13;
  // Adding 0.5 leaves the rounded subnormal in the low bits.
  const Bits32 small = as_bits(as_float(rest) + 0.5F) - as_bits(0.5F);
  Bits32 half = rest < (113U << 23) ? small : normal;
  half = rest >= 0x477ff000U ? 0x7c00U : half;  // 65536 and above, rounded
  half = rest > 0x7f800000U ? 0x7e00U | ((rest >> 13) & 0x3ffU) : half;
  return static_cast<Bits16>(half | sign);
}

}  // namespace
}  // namespace paceline::base
