// SPDX-License-Identifier: Apache-2.0
// The loops of loops.hpp for any processor; the flags are in accel/CMakeLists.txt.
#define PACELINE_KERNELS kScalarKernels
#include "loops.hpp"
