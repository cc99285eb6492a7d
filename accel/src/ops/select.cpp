// SPDX-License-Identifier: Apache-2.0
#include "base/simd.hpp"
#include "kernels.hpp"

namespace paceline::ops {

const Kernels& best_kernels() {
#if defined(__x86_64__)
  if (base::best_simd() == base::Simd::kAvx512) return kAvx512Kernels;
  if (base::best_simd() == base::Simd::kAvx2) return kAvx2Kernels;
#endif
  return kScalarKernels;
}

}  // namespace paceline::ops
