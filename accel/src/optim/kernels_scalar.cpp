// SPDX-License-Identifier: Apache-2.0
// The loops of tile_kernels.hpp for any processor; the flags are in accel/CMakeLists.txt.
#define PACELINE_LEVEL scalar
#define PACELINE_KERNELS kScalarKernels
#define PACELINE_HALVES base::kScalarHalves
#include "tile_kernels.hpp"
