// SPDX-License-Identifier: Apache-2.0
// The functions of ops/device/warp.hpp in C++: what a thread of a warp gives to the others lies in
// an array, between two barriers of the whole block. So all threads of a block have to call them
// equally often, as the kernels do. The layouts of tiles are those of NVIDIA's PTX ISA 7.0.
#pragma once

#include <cmath>

#include "../../src/ops/device/launches.hpp"
#include "cuda_shim.hpp"

namespace paceline::ops::device {
namespace {

constexpr int kWarp = 32;
constexpr int kMostThreads = 256;

// Gives `own` to the block, calls use(given), where given[i] is what thread i of the warp gave.
template <typename Value, typename Use>
void exchange(const Value& own, const Use& use) {
  static Value given[kMostThreads];
  const unsigned thread = threadIdx.x;
  given[thread] = own;
  __syncthreads();
  use(given + thread / kWarp * kWarp);
  __syncthreads();
}

template <Bits32 kType>
Bits32 pack(float low, float high) {
  const auto bits = [](float value) {
    return Bits32{kType == kBf16 ? base::float_to_bf16(value) : base::float_to_half(value)};
  };
  return bits(high) << 16 | bits(low);
}

template <Bits32 kType>
float unpack(Bits32 both, int half) {
  const auto bits = static_cast<Bits16>(half == 0 ? both & 0xffffU : both >> 16);
  return kType == kBf16 ? base::bf16_to_float(bits) : base::half_to_float(bits);
}

struct Factors {
  Bits32 a[4], b[2];
};

template <Bits32 kType>
void multiply(float (&c)[4], const Bits32 (&a)[4], Bits32 b0, Bits32 b1) {
  exchange(Factors{{a[0], a[1], a[2], a[3]}, {b0, b1}}, [&](const Factors* warp) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8;
      const int column = lane % 4 * 2 + i % 2;
      for (int k = 0; k < 16; ++k) {
        const Bits32 left = warp[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2];
        const Bits32 right = warp[column * 4 + k % 8 / 2].b[k / 8];
        c[i] += unpack<kType>(left, k % 2) * unpack<kType>(right, k % 2);
      }
    }
  });
}

void load_transposed(Bits32 (&tile)[4], const Bits16* row) {
  exchange(row, [&](const Bits16* const* warp) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    for (int i = 0; i < 4; ++i) {
      const Bits16* const* rows = warp + i * 8 + lane % 4 * 2;
      tile[i] = Bits32{rows[1][lane / 4]} << 16 | rows[0][lane / 4];
    }
  });
}

template <typename Number>
Number of_neighbour(Number value, int mask) {
  Number theirs = 0;
  exchange(value, [&](const Number* warp) {
    theirs = warp[static_cast<int>(threadIdx.x) % kWarp ^ mask];
  });
  return theirs;
}

float power_of_two(float exponent) { return std::exp2(exponent); }

}  // namespace
}  // namespace paceline::ops::device
