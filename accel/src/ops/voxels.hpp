// SPDX-License-Identifier: Apache-2.0
// Points of a LiDAR grouped into voxels, which are numbered in the order in which points enter
// them.
#pragma once

#include "paceline/ops.h"

namespace paceline::ops {

// Both return PACELINE_OK, or PACELINE_ESYSTEM without memory. Arguments have been checked, except
// the numbers in voxel_of_point and counts, which fill_voxels checks: it returns PACELINE_EINVAL if
// a point's voxel is not one of its cloud.
int number_voxels(const paceline_voxels& all, int threads);
int fill_voxels(const paceline_voxels& all, float* filled, int threads);

}  // namespace paceline::ops
