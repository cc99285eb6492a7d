// SPDX-License-Identifier: Apache-2.0
// The inner loops of the optimizers over one tile of fp32 values, and the choice between them. They
// are compiled once for each instruction set. All compute the same bits: none contracts into fused
// multiply-adds, and sums of squares follow the order in formulas.hpp. The functions are pure. The
// caller's arrays do not overlap, and nothing fails.
#pragma once

#include <cstdint>

#include "base/halves.hpp"
#include "formulas.hpp"

namespace paceline::optim {

struct Kernels {
  const char* name;
  const base::Halves& halves;
  // Adds the squares of in[i] * factor to sums[i % kLanes], one span at a time. `in` starts at the
  // start of a span.
  void (*squares)(const float* in, float factor, std::int64_t count, double* sums);
  // `maximum` may be null (no AMSGrad).
  void (*adam)(float* p, const float* g, float* m, float* v, float* maximum, std::int64_t count,
               const AdamConstants& c);
  // Updates the moments, and sums the squares of the parameter and of the update.
  void (*lamb_moments)(const float* p, const float* g, float* m, float* v, std::int64_t count,
                       const AdamConstants& c, double* param_sums, double* update_sums);
  void (*lamb_apply)(float* p, const float* m, const float* v, std::int64_t count,
                     const AdamConstants& c);
  // `buffer` may be null (no momentum).
  void (*sgd)(float* p, const float* g, float* buffer, std::int64_t count, const SgdConstants& c);
};

extern const Kernels kScalarKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

// Returns the best kernels for this processor (base/simd.hpp).
const Kernels& best_kernels();

}  // namespace paceline::optim
