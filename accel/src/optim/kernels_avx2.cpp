// SPDX-License-Identifier: Apache-2.0
// The loops of tile_kernels.hpp for x86-64 with AVX2; the flags are in accel/CMakeLists.txt.
#define PACELINE_LEVEL avx2
#define PACELINE_KERNELS kAvx2Kernels
#define PACELINE_HALVES base::kAvx2Halves
#include "tile_kernels.hpp"
