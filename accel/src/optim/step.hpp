// SPDX-License-Identifier: Apache-2.0
// One step of an optimizer over a list of tensors; optim.h describes the fields. Each chunk of a
// tensor is read and written once, in tiles that stay in the first-level cache. LAMB and LARS make
// a pass for the norms of a layer first. Owns nothing between calls; any thread may call. Failure
// is a negative PACELINE_E*, returned before anything is written.
#pragma once

#include <span>

#include "kernels.hpp"
#include "paceline/optim.h"

namespace paceline::optim {

using Group = paceline_optim_group;
using Tensor = paceline_optim_tensor;

// Checks the fields of groups and tensors. With `with_gradients` it checks gradients, too.
int check(std::span<const Group> groups, std::span<const Tensor> tensors, bool with_gradients);

int step(const Kernels& kernels, std::span<const Group> groups, std::span<const Tensor> tensors,
         int threads);
int gradient_norm(const Kernels& kernels, std::span<const Tensor> tensors, int threads,
                  double* norm);

}  // namespace paceline::optim
