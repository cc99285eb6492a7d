// SPDX-License-Identifier: Apache-2.0
// The functions of optim.h. Each checks its arguments and makes one call; no exception leaves it.
#include <cstddef>
#include <new>

#include "step.hpp"

namespace optim = paceline::optim;

extern "C" {

int paceline_optim_step(const struct paceline_optim_group* groups, uint32_t group_count,
                        const struct paceline_optim_tensor* tensors, uint64_t tensor_count,
                        int32_t threads) {
  if ((groups == nullptr && group_count > 0) || (tensors == nullptr && tensor_count > 0))
    return PACELINE_EINVAL;
  try {
    return optim::step(optim::best_kernels(), {groups, group_count},
                       {tensors, static_cast<std::size_t>(tensor_count)}, threads);
  } catch (const std::bad_alloc&) {
    return PACELINE_ESYSTEM;
  }
}

int paceline_optim_norm(const struct paceline_optim_tensor* tensors, uint64_t tensor_count,
                        int32_t threads, double* norm) {
  if (tensors == nullptr && tensor_count > 0) return PACELINE_EINVAL;
  try {
    return optim::gradient_norm(optim::best_kernels(),
                                {tensors, static_cast<std::size_t>(tensor_count)}, threads, norm);
  } catch (const std::bad_alloc&) {
    return PACELINE_ESYSTEM;
  }
}

const char* paceline_optim_simd(void) { return optim::best_kernels().name; }

}  // extern "C"
