// SPDX-License-Identifier: Apache-2.0
// Makes the columns of a matrix orthonormal, with the same bits on every processor, so that ranks
// agree without asking each other. PowerSGD uses it.
//
// Ownership: the caller's matrix. Threads: a pure function. Failure: std::bad_alloc.
#pragma once

#include <cstddef>

namespace paceline::comm {

// Row by row in memory, in place; one column after another, in double precision. Columns of zeros,
// and what others leave nothing of, stay so.
void orthonormalize(float* matrix, std::size_t rows, std::size_t columns);

}  // namespace paceline::comm
