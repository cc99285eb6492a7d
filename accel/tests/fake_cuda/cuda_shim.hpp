// SPDX-License-Identifier: Apache-2.0
// Lets a C++ compiler read a kernel's source. A .cu file of device code alone is included after
// this header. Its kernels are then functions, whose blocks run one after the other on Fibers.
// Shared memory is static, since one block runs at a time. Not thread-safe.
#pragma once

#include "fibers.hpp"

// Counts the accesses of several elements at once: each makes a uint4 or a uint2.
struct WideAccess {
  WideAccess() { ++count; }
  WideAccess(const WideAccess&) { ++count; }
  WideAccess& operator=(const WideAccess&) = default;
  inline static long count = 0;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
  [[no_unique_address]] WideAccess access = {};
};
struct alignas(8) uint2 {
  unsigned x, y;
  [[no_unique_address]] WideAccess access = {};
};
static_assert(sizeof(uint4) == 16 && sizeof(uint2) == 8);
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

template <typename Number>
Number atomicAdd(Number* address, Number value) {
  const Number old = *address;
  *address += value;
  return old;
}

int atomicMin(int* address, int value) {
  const int old = *address;
  *address = old < value ? old : value;
  return old;
}

}  // namespace

#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static
