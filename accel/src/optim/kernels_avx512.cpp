// SPDX-License-Identifier: Apache-2.0
// The loops of tile_kernels.hpp for x86-64 with AVX-512; the flags are in accel/CMakeLists.txt.
#define PACELINE_LEVEL avx512
#define PACELINE_KERNELS kAvx512Kernels
#define PACELINE_HALVES base::kAvx512Halves
#include "tile_kernels.hpp"
