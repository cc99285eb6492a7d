// SPDX-License-Identifier: Apache-2.0
// What a kernel's source says to a CUDA compiler, said to a C++ compiler: a .cu file of device code
// alone is included after this, and its kernels are functions whose blocks run one after the other
// on Fibers. Shared memory is static, since one block runs at a time. Not thread-safe.
#pragma once

#include <algorithm>

#include "fibers.hpp"

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

namespace {

Index3 threadIdx;
Index3 blockIdx;
Index3 gridDim;

void __syncthreads() {
  const Index3 kept = threadIdx;
  paceline::device_test::Fibers::current()->barrier();
  threadIdx = kept;
}

void __threadfence() {}

// Of a warp, all of whose threads call. Here every thread of the block must: they wait for each
// other.
constexpr unsigned kWarpThreads = 32;

template <typename T, typename Combine>
auto across_warp(T value, const Combine& combine) {
  static T told[1024];
  told[threadIdx.x] = value;
  __syncthreads();
  const auto answer =
      combine(told + threadIdx.x / kWarpThreads * kWarpThreads, threadIdx.x % kWarpThreads);
  __syncthreads();
  return answer;
}

template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return across_warp(value, [&](const T* warp, unsigned lane) {
    return warp[lane ^ static_cast<unsigned>(mask)];
  });
}

unsigned __reduce_max_sync(unsigned, unsigned value) {
  return across_warp(value, [](const unsigned* warp, unsigned) {
    return *std::max_element(warp, warp + kWarpThreads);
  });
}

unsigned __ballot_sync(unsigned, bool value) {
  return across_warp(value ? 1U : 0U, [](const unsigned* warp, unsigned) {
    unsigned bits = 0;
    for (unsigned i = 0; i < kWarpThreads; ++i) bits |= warp[i] << i;
    return bits;
  });
}

unsigned atomicAdd(unsigned* address, unsigned value) {
  const unsigned old = *address;
  *address += value;
  return old;
}

}  // namespace

#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static
