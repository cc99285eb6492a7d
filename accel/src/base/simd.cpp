// SPDX-License-Identifier: Apache-2.0
#include "base/simd.hpp"

#include <cstdlib>
#include <cstring>

#include "../contract.hpp"
#include "base/halves.hpp"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace paceline::base {

#if defined(__x86_64__)
namespace {

struct Leaf {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Leaf cpuid(unsigned number) {
  Leaf leaf;
  if (__get_cpuid_count(number, 0, &leaf.a, &leaf.b, &leaf.c, &leaf.d) == 0) return {};
  return leaf;
}

// Returns whether the kernel saves these register states. A processor may have an extension that
// the system does not support.
bool system_saves(unsigned mask) {
  if ((cpuid(1).c & bit_OSXSAVE) == 0) return false;
  unsigned low = 0;
  unsigned high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & mask) == mask;
}

}  // namespace

// Does not use __builtin_cpu_supports, because some compilers lack the library with its table.
bool has_avx2() {
  const Leaf one = cpuid(1);
  return system_saves(0x6) && (one.c & bit_AVX) != 0 && (one.c & bit_F16C) != 0 &&
         (cpuid(7).b & bit_AVX2) != 0;
}

bool has_avx512() {
  constexpr unsigned kNeeded = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
  return has_avx2() && system_saves(0xe6) && (cpuid(7).b & kNeeded) == kNeeded;
}
#endif

namespace {

Simd choose() {
#if defined(__x86_64__)
  const char* told = std::getenv(runtime_env::kSimd);
  const bool scalar = told != nullptr && std::strcmp(told, "scalar") == 0;
  const bool narrow = told != nullptr && std::strcmp(told, "avx2") == 0;
  if (!scalar && !narrow && has_avx512()) return Simd::kAvx512;
  if (!scalar && has_avx2()) return Simd::kAvx2;
#endif
  return Simd::kScalar;
}

}  // namespace

Simd best_simd() {
  static const Simd chosen = choose();
  return chosen;
}

const Halves& best_halves() {
#if defined(__x86_64__)
  if (best_simd() == Simd::kAvx512) return kAvx512Halves;
  if (best_simd() == Simd::kAvx2) return kAvx2Halves;
#endif
  return kScalarHalves;
}

}  // namespace paceline::base
