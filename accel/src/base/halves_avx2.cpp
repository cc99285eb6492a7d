// SPDX-License-Identifier: Apache-2.0
// The loops of halves_loops.hpp for x86-64 with AVX2; the flags are in accel/CMakeLists.txt.
#define PACELINE_HALVES kAvx2Halves
#include "halves_loops.hpp"
