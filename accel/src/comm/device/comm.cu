// SPDX-License-Identifier: Apache-2.0
// Sums of gradients on a GPU: device code alone, for nvcc and NVRTC, launched through the driver's
// API. Elements are added in the order of the sources, halves in fp32 and rounded once, integers
// wrap: the bits of sum.cpp, for both convert by formulas.hpp. Sources may lie in the memory of
// another process or of another GPU; nothing here waits for either.
#include "table.hpp"

namespace paceline::comm::device {
namespace {

// An element type: as it lies in memory, as it is added, and the way from one to the other and
// back.
template <typename Number>
struct Plain {
  using Stored = Number;
  using Sum = Number;
  static PACELINE_INLINE Sum widen(Stored value) { return value; }
  static PACELINE_INLINE Stored narrow(Sum value) { return value; }
};

struct Half {
  using Stored = Bits16;
  using Sum = float;
  static PACELINE_INLINE Sum widen(Stored value) { return optim::half_to_float(value); }
  static PACELINE_INLINE Stored narrow(Sum value) { return optim::float_to_half(value); }
};

struct Bfloat {
  using Stored = Bits16;
  using Sum = float;
  static PACELINE_INLINE Sum widen(Stored value) { return optim::bf16_to_float(value); }
  static PACELINE_INLINE Stored narrow(Sum value) { return optim::float_to_bf16(value); }
};

// `kWide` elements that are read and written at once.
template <typename Stored, int kWide>
struct alignas(kWide * sizeof(Stored)) Pack {
  Stored value[kWide];
};

template <typename Type, int kWide>
PACELINE_INLINE void sum_at(const SumLaunch& launch, Int64 at) {
  using Loaded = Pack<typename Type::Stored, kWide>;
  const auto load = [&](Bits32 source) {
    return *reinterpret_cast<const Loaded*>(
        static_cast<const typename Type::Stored*>(launch.sources[source]) + at);
  };
  Loaded pack = load(0);
  typename Type::Sum total[kWide];
#pragma unroll
  for (int i = 0; i < kWide; ++i) total[i] = Type::widen(pack.value[i]);
  // Several loads are under way before the first is added: memory of another GPU is far.
#pragma unroll 4
  for (Bits32 source = 1; source < launch.source_count; ++source) {
    pack = load(source);
#pragma unroll
    for (int i = 0; i < kWide; ++i) total[i] += Type::widen(pack.value[i]);
  }
#pragma unroll
  for (int i = 0; i < kWide; ++i) pack.value[i] = Type::narrow(total[i]);
  *reinterpret_cast<Loaded*>(static_cast<typename Type::Stored*>(launch.target) + at) = pack;
}

template <typename Type>
PACELINE_INLINE void sum_all(const SumLaunch& launch) {
  constexpr int kWide = kVector / static_cast<int>(sizeof(typename Type::Stored));
  // Elements before the first address that a whole vector may be read from, and whole vectors from
  // there on.
  const auto off =
      reinterpret_cast<unsigned long long>(launch.target) % kVector / sizeof(typename Type::Stored);
  Int64 head = off == 0 ? 0 : kWide - static_cast<Int64>(off);
  if (head > launch.count) head = launch.count;
  const Int64 packs = (launch.count - head) / kWide;
  const Int64 first = static_cast<Int64>(blockIdx.x) * kThreads + threadIdx.x;
  const Int64 stride = static_cast<Int64>(gridDim.x) * kThreads;
  for (Int64 pack = first; pack < packs; pack += stride)
    sum_at<Type, kWide>(launch, head + pack * kWide);
  // What is left on both ends is less than a block has threads.
  if (first < launch.count - packs * kWide)
    sum_at<Type, 1>(launch, first < head ? first : first + packs * kWide);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    paceline_comm_sum(const __grid_constant__ SumLaunch launch) {
  switch (launch.type) {
    case kFloat32: return sum_all<Plain<float>>(launch);
    case kFloat64: return sum_all<Plain<double>>(launch);
    case kFloat16: return sum_all<Half>(launch);
    case kBfloat16: return sum_all<Bfloat>(launch);
    case kInt32: return sum_all<Plain<unsigned>>(launch);
    case kInt64: return sum_all<Plain<unsigned long long>>(launch);
    default: return;
  }
}

}  // namespace paceline::comm::device
