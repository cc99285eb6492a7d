// SPDX-License-Identifier: Apache-2.0
// The loops of kernels.hpp. One source for each instruction set includes this file. Each is
// compiled with its own flags and defines PACELINE_KERNELS as the name of its table. Everything is
// in an unnamed namespace and uses nothing of the standard library. So the linker never uses a copy
// compiled for AVX-512 on other processors.
#include "base/loops.hpp"
#include "kernels.hpp"

namespace paceline::ops {
namespace {

using base::i64;

constexpr double kLeastUnion = 1e-6;  // an empty union would divide by zero

// NaN in `a` or `b` must give NaN, as in PyTorch: these are not std::max and std::min.
double larger(double a, double b) { return ((a > b) | (a != a)) ? a : b; }
double smaller(double a, double b) { return ((a < b) | (a != a)) ? a : b; }

void regions(const Places& places, i64 count, const Truth& truth, std::uint8_t* codes) {
  const double *x = places.x, *y = places.y, *reach_x = places.reach_x, *reach_y = places.reach_y;
  const Truth t = truth;
  PACELINE_APART
  for (i64 i = 0; i < count; ++i) {
    const bool in_box = (x[i] > t.left) & (y[i] > t.top) & (x[i] < t.right) & (y[i] < t.bottom);
    const bool in_centre = (x[i] > t.x - reach_x[i]) & (y[i] > t.y - reach_y[i]) &
                           (x[i] < t.x + reach_x[i]) & (y[i] < t.y + reach_y[i]);
    codes[i] = static_cast<std::uint8_t>((in_box ? kInBox : 0) | (in_centre ? kInCentre : 0));
  }
}

void overlaps(const Boxes& boxes, i64 count, const Truth& truth, double* out) {
  const double *left = boxes.left, *top = boxes.top, *right = boxes.right;
  const double *bottom = boxes.bottom, *area = boxes.area;
  const Truth t = truth;
  PACELINE_APART
  for (i64 i = 0; i < count; ++i) {
    const double width = smaller(right[i], t.right) - larger(left[i], t.left);
    const double height = smaller(bottom[i], t.bottom) - larger(top[i], t.top);
    const double shared = larger(width, 0.0) * larger(height, 0.0);
    out[i] = shared / larger(area[i] + t.area - shared, kLeastUnion);
  }
}

bool misses(const float* scores, i64 classes, double* products) {
  constexpr i64 kLanes = 8;  // so that a product does not wait for the one before it
  bool good = true;
  for (i64 begin = 0; begin < classes; begin += kClassesOfProduct) {
    const i64 end = begin + kClassesOfProduct < classes ? begin + kClassesOfProduct : classes;
    double lanes[kLanes] = {1, 1, 1, 1, 1, 1, 1, 1};
    i64 i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (i64 j = 0; j < kLanes; ++j) {
        good &= (scores[i + j] >= 0.0F) & (scores[i + j] <= 1.0F);
        lanes[j] *= 1.0 - static_cast<double>(scores[i + j]);
      }
    }
    for (i64 j = 0; i < end; ++i, ++j) {
      good &= (scores[i] >= 0.0F) & (scores[i] <= 1.0F);
      lanes[j] *= 1.0 - static_cast<double>(scores[i]);
    }
    double product = 1;
    for (const double lane : lanes) product *= lane;
    *products++ = product;
  }
  return good;
}

}  // namespace

const Kernels PACELINE_KERNELS{regions, overlaps, misses};

}  // namespace paceline::ops
