// SPDX-License-Identifier: Apache-2.0
// Makes the columns of a matrix orthonormal, with the same bits on every processor, so that ranks
// agree without asking each other. PowerSGD uses it.
//
// Ownership: the caller's matrix. Threads: a pure function. Failure: std::bad_alloc.
#pragma once

#include <cstddef>

namespace paceline::comm {

// `matrix` is row-major and changed in place, one column after another, in double precision.
// Columns of zeros stay zeros, as does a column that is a combination of earlier ones.
void orthonormalize(float* matrix, std::size_t rows, std::size_t columns);

}  // namespace paceline::comm
