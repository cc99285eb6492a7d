// SPDX-License-Identifier: Apache-2.0
// The inner loops of SimOTA, and the choice between them. They are compiled once for each
// instruction set, and all compute the same bits. The functions are pure. The caller's arrays do
// not overlap, and nothing fails.
#pragma once

#include <cstdint>

namespace paceline::ops {

// How many classes one product of misses() covers: of 32 factors of at least 2^-24 none underflows.
constexpr std::int64_t kClassesOfProduct = 32;
constexpr std::uint8_t kInBox = 1, kInCentre = 2;

// Columns of priors. A prior's centre region reaches this far from the centre of a truth.
struct Places {
  const double *x, *y, *reach_x, *reach_y;
};

struct Boxes {
  const double *left, *top, *right, *bottom, *area;
};

struct Truth {
  double left, top, right, bottom, area, x, y;
};

struct Kernels {
  // Sets codes[i] to kInBox and kInCentre for the regions of the truth that place i lies in.
  void (*regions)(const Places& places, std::int64_t count, const Truth& truth,
                  std::uint8_t* codes);
  // Sets overlaps[i] to the intersection over union of box i and the truth.
  void (*overlaps)(const Boxes& boxes, std::int64_t count, const Truth& truth, double* overlaps);
  // Multiplies 1 - score over each kClassesOfProduct classes. Returns whether all scores lie in
  // [0, 1].
  bool (*misses)(const float* scores, std::int64_t classes, double* products);
};

extern const Kernels kScalarKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

// Returns the best kernels for this processor (base/simd.hpp).
const Kernels& best_kernels();

}  // namespace paceline::ops
