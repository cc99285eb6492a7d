// SPDX-License-Identifier: Apache-2.0
// The loops of halves_loops.hpp for any processor; the flags are in accel/CMakeLists.txt.
#define PACELINE_HALVES kScalarHalves
#include "halves_loops.hpp"
