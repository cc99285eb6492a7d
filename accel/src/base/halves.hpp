// SPDX-License-Identifier: Apache-2.0
// Converts arrays of 16-bit floats, as float16.hpp converts one. The optimizers and the
// communicator use it. The loops are compiled once for each instruction set, and all compute the
// same bits. The functions are pure. Arrays do not overlap, and nothing fails.
#pragma once

#include <cstdint>

namespace paceline::base {

struct Halves {
  void (*from_bf16)(const std::uint16_t* in, float* out, std::int64_t count);
  void (*to_bf16)(const float* in, std::uint16_t* out, std::int64_t count);
  void (*from_f16)(const std::uint16_t* in, float* out, std::int64_t count);
  void (*to_f16)(const float* in, std::uint16_t* out, std::int64_t count);
};

extern const Halves kScalarHalves;
#if defined(__x86_64__)
extern const Halves kAvx2Halves;
extern const Halves kAvx512Halves;
#endif

// Returns the best loops for this processor (simd.hpp). Decided once.
const Halves& best_halves();

}  // namespace paceline::base
