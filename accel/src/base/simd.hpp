// SPDX-License-Identifier: Apache-2.0
// Which of the instruction sets that loops are compiled for this processor has. Thread-safe;
// nothing fails.
#pragma once

#include <cstdint>

namespace paceline::base {

enum class Simd : std::uint8_t { kScalar, kAvx2, kAvx512 };

#if defined(__x86_64__)
bool has_avx2();  // and F16C
bool has_avx512();
#endif

// Returns the best one, or the lesser one that PACELINE_SIMD names. Decided once.
Simd best_simd();

}  // namespace paceline::base
