// SPDX-License-Identifier: Apache-2.0
// How the kernels of optim.cu read and write elements: one at a time, or four at once where the
// address is good for that. Only block.hpp includes this file.
#pragma once

#include "table.hpp"

namespace paceline::optim::device {
namespace {

// `kWide` elements as they lie in memory. An fp32 element takes a word. 16-bit elements take halves
// of words; a single one takes the first half.
template <int kWide>
struct Raw {
  Bits32 word[kWide];
};

template <int kWide>
PACELINE_INLINE Raw<kWide> load(const void* data, Bits32 dtype, Int64 at) {
  Raw<kWide> raw = {};
  if constexpr (kWide == 4) {
    if (dtype == kF32) {
      const uint4 words = *reinterpret_cast<const uint4*>(static_cast<const float*>(data) + at);
      raw.word[0] = words.x;
      raw.word[1] = words.y;
      raw.word[2] = words.z;
      raw.word[3] = words.w;
    } else {
      const uint2 words = *reinterpret_cast<const uint2*>(static_cast<const Bits16*>(data) + at);
      raw.word[0] = words.x;
      raw.word[1] = words.y;
    }
  } else {
    raw.word[0] =
        dtype == kF32 ? static_cast<const Bits32*>(data)[at] : static_cast<const Bits16*>(data)[at];
  }
  return raw;
}

// As load<kWide>, of an address that is good for single elements only.
template <int kWide>
PACELINE_INLINE Raw<kWide> load_each(const void* data, Bits32 dtype, Int64 at) {
  Raw<kWide> raw = {};
#pragma unroll
  for (int i = 0; i < kWide; ++i) {
    const Bits32 one = load<1>(data, dtype, at + i).word[0];
    if (dtype == kF32)
      raw.word[i] = one;
    else
      raw.word[i / 2] |= i % 2 == 0 ? one : one << 16;
  }
  return raw;
}

PACELINE_INLINE float widen(Bits16 bits, Bits32 dtype) {
  return dtype == kBf16 ? bf16_to_float(bits) : half_to_float(bits);
}

template <int kWide>
PACELINE_INLINE float element(const Raw<kWide>& raw, int i, Bits32 dtype) {
  if (dtype == kF32) return as_float(raw.word[i]);
  const Bits32 word = raw.word[i / 2];
  return widen(static_cast<Bits16>(i % 2 == 0 ? word : word >> 16), dtype);
}

template <int kWide>
struct Values {
  float value[kWide];
};

template <int kWide>
PACELINE_INLINE Values<kWide> load_floats(const float* data, Int64 at) {
  Values<kWide> values = {};
  const Raw<kWide> raw = load<kWide>(data, kF32, at);
#pragma unroll
  for (int i = 0; i < kWide; ++i) values.value[i] = as_float(raw.word[i]);
  return values;
}

template <int kWide>
PACELINE_INLINE void store_floats(float* data, Int64 at, const Values<kWide>& values) {
  if constexpr (kWide == 4) {
    *reinterpret_cast<uint4*>(data + at) =
        uint4{as_bits(values.value[0]), as_bits(values.value[1]), as_bits(values.value[2]),
              as_bits(values.value[3])};
  } else {
    data[at] = values.value[0];
  }
}

PACELINE_INLINE Bits32 narrow(float value, Bits32 dtype) {
  return dtype == kBf16 ? float_to_bf16(value) : float_to_half(value);
}

template <int kWide>
PACELINE_INLINE void store_halves(void* data, Bits32 dtype, Int64 at, const Values<kWide>& values) {
  auto* halves = static_cast<Bits16*>(data) + at;
  if constexpr (kWide == 4) {
    const Bits32 low = narrow(values.value[0], dtype) | narrow(values.value[1], dtype) << 16;
    const Bits32 high = narrow(values.value[2], dtype) | narrow(values.value[3], dtype) << 16;
    *reinterpret_cast<uint2*>(halves) = uint2{low, high};
  } else {
    *halves = static_cast<Bits16>(narrow(values.value[0], dtype));
  }
}

// Reads a value that other blocks of the same launch write. It bypasses the cache of this
// multiprocessor.
PACELINE_INLINE double fresh(const double* value) {
  return *const_cast<const volatile double*>(value);
}

// Where the parameter is read in fp32: its master, or its own value.
PACELINE_INLINE const void* source_of(const DeviceTensor& tensor) {
  return tensor.master != nullptr ? tensor.master : tensor.param;
}
PACELINE_INLINE Bits32 source_dtype(const DeviceTensor& tensor) {
  return tensor.master != nullptr ? kF32 : tensor.param_dtype;
}

template <int kWide>
PACELINE_INLINE void store_param(const DeviceTensor& tensor, Int64 at,
                                 const Values<kWide>& values) {
  if (tensor.master != nullptr) store_floats(tensor.master, at, values);
  if (tensor.param_dtype == kF32)
    store_floats(static_cast<float*>(tensor.param), at, values);
  else
    store_halves(tensor.param, tensor.param_dtype, at, values);
}

template <int kWide>
PACELINE_INLINE Values<kWide> load_state(const DeviceTensor& tensor, const float* state, Int64 at) {
  if (tensor.state_dtype == kF32) return load_floats<kWide>(state, at);
  const Raw<kWide> raw = load<kWide>(state, tensor.state_dtype, at);
  Values<kWide> values = {};
#pragma unroll
  for (int i = 0; i < kWide; ++i) values.value[i] = element(raw, i, tensor.state_dtype);
  return values;
}

template <int kWide>
PACELINE_INLINE void store_state(const DeviceTensor& tensor, float* state, Int64 at,
                                 const Values<kWide>& values) {
  if (tensor.state_dtype == kF32)
    store_floats(state, at, values);
  else
    store_halves(state, tensor.state_dtype, at, values);
}

}  // namespace
}  // namespace paceline::optim::device
