// SPDX-License-Identifier: Apache-2.0
#include "comm/codec/orthonormal.hpp"

#include <array>
#include <cmath>
#include <vector>

namespace paceline::comm {
namespace {

// Four independent sums, then one: a fixed order in which no addition waits for the one before.
double product_of(const double* a, const double* b, std::size_t count) {
  std::array<double, 4> sums{};
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4)
    for (std::size_t k = 0; k < 4; ++k) sums[k] += a[i + k] * b[i + k];
  for (; i < count; ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

}  // namespace

void orthonormalize(float* matrix, std::size_t rows, std::size_t columns) {
  std::vector<double> all(rows * columns);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t k = 0; k < columns; ++k) all[k * rows + row] = matrix[row * columns + k];
  for (std::size_t k = 0; k < columns; ++k) {
    double* const column = all.data() + k * rows;
    // The second pass removes what rounding has left of the other columns.
    for (int turn = 0; turn < 2; ++turn) {
      for (std::size_t j = 0; j < k; ++j) {
        const double* const other = all.data() + j * rows;
        const double share = product_of(other, column, rows);
        for (std::size_t i = 0; i < rows; ++i) column[i] -= other[i] * share;
      }
    }
    const double length = std::sqrt(product_of(column, column, rows));
    if (!(length > 0)) continue;
    for (std::size_t i = 0; i < rows; ++i) column[i] /= length;
  }
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t k = 0; k < columns; ++k)
      matrix[row * columns + k] = static_cast<float>(all[k * rows + row]);
}

}  // namespace paceline::comm
