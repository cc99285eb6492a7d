// SPDX-License-Identifier: Apache-2.0
// The targets of an FCOS3D head: each point of a feature map learns from the ground truth whose
// projected centre is nearest, if the point lies in that centre's region.
#pragma once

#include "paceline/ops.h"

namespace paceline::ops {

// Returns PACELINE_OK, or PACELINE_ESYSTEM without memory. Arguments have been checked.
int fcos3d_targets(const paceline_fcos3d& all, int threads);

}  // namespace paceline::ops
