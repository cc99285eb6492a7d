// SPDX-License-Identifier: Apache-2.0
// One step of an optimizer over a list of tensors (optim.h says what the fields mean). Each chunk
// of a tensor is read and written once, in tiles that stay in the first-level cache; LAMB and LARS
// need the norms of a layer first and come a second time. Owns nothing between calls; any thread.
// Failure is a negative PACELINE_E*, before anything was written.
#pragma once

#include <span>

#include "kernels.hpp"
#include "paceline/optim.h"

namespace paceline::optim {

using Group = paceline_optim_group;
using Tensor = paceline_optim_tensor;

// What the fields must be; gradients are looked at only where they are already told.
int check(std::span<const Group> groups, std::span<const Tensor> tensors, bool with_gradients);

int step(const Kernels& kernels, std::span<const Group> groups, std::span<const Tensor> tensors,
         int threads);
int gradient_norm(const Kernels& kernels, std::span<const Tensor> tensors, int threads,
                  double* norm);

}  // namespace paceline::optim
