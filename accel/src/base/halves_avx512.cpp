// SPDX-License-Identifier: Apache-2.0
// The loops of halves_loops.hpp for x86-64 with AVX-512; the flags are in accel/CMakeLists.txt.
#define PACELINE_HALVES kAvx512Halves
#include "halves_loops.hpp"
