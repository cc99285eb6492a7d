// SPDX-License-Identifier: Apache-2.0
// SimOTA: each ground truth takes the priors that cost least, as many as its best overlaps sum to.
#pragma once

#include "kernels.hpp"
#include "paceline/ops.h"

namespace paceline::ops {

// Returns PACELINE_OK, PACELINE_EINVAL with `bad_score` set, or PACELINE_ESYSTEM without memory.
// Other arguments have been checked.
int simota_assign(const Kernels& kernels, paceline_simota& all, int threads);

}  // namespace paceline::ops
