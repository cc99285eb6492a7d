// SPDX-License-Identifier: Apache-2.0
// The loops of loops.hpp for x86-64 with AVX-512; the flags are in accel/CMakeLists.txt.
#define PACELINE_KERNELS kAvx512Kernels
#include "loops.hpp"
