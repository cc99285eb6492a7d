// SPDX-License-Identifier: Apache-2.0
// What the 32 threads of a warp do together: products of tiles of 16-bit numbers, loads of tiles,
// and exchanges. PTX for sm_80 and newer ("mma.m16n8k16", "ldmatrix", NVIDIA's PTX ISA 7.0). The
// tests' fake driver has the same functions in C++ (fake_cuda/warp_shim.hpp).
#pragma once

#include "launches.hpp"

#if defined(__CUDACC__)
namespace paceline::ops::device {
namespace {

// Two numbers as 16-bit ones, of which `low` takes the lower half.
template <Bits32 kType>
PACELINE_INLINE Bits32 pack(float low, float high) {
  Bits32 both;
  if constexpr (kType == kBf16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// c += a b: of (16, 16) and (16, 8). Thread l holds of c the rows l / 4 and l / 4 + 8, and the
// columns 2 (l % 4) and the next.
template <Bits32 kType>
PACELINE_INLINE void multiply(float (&c)[4], const Bits32 (&a)[4], Bits32 b0, Bits32 b1) {
  if constexpr (kType == kBf16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four tiles of (8, 8) from shared memory, transposed. Thread l names row l % 8 of tile l / 8.
PACELINE_INLINE void load_transposed(Bits32 (&tile)[4], const Bits16* row) {
  const auto address = static_cast<Bits32>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3])
               : "r"(address)
               : "memory");
}

// What the thread of the warp whose number differs by these bits has.
template <typename Number>
PACELINE_INLINE Number of_neighbour(Number value, int mask) {
  return __shfl_xor_sync(0xffffffffU, value, mask);
}

PACELINE_INLINE float power_of_two(float exponent) { return exp2f(exponent); }

}  // namespace
}  // namespace paceline::ops::device
#endif
