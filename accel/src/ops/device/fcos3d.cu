// SPDX-License-Identifier: Apache-2.0
// The targets of an FCOS3D head on a GPU: ../fcos3d.cpp says the same for processors. This file has
// device code only, for nvcc and NVRTC. A thread takes one point of one image, and looks at each of
// the image's ground truths. All threads of a warp read the same one at a time.
#include "launches.hpp"

namespace paceline::ops::device {
namespace {

constexpr float kDiagonal = 1.414F;  // the original's square root of two

// The ground truth that a point learns from, or -1, and how far its centre is.
struct Winner {
  int truth;
  float distance;
};

PACELINE_INLINE Winner winner_of(const Targets& all, const TargetLevel& level, float x, float y,
                                 int begin, int end) {
  Winner winner = {-1, 0};
  for (int truth = begin; truth < end; ++truth) {
    const float center_x = all.centers[2 * truth];
    const float center_y = all.centers[2 * truth + 1];
    if (!(x > center_x - level.radius && x < center_x + level.radius &&
          y > center_y - level.radius && y < center_y + level.radius))
      continue;
    const float* const box = all.boxes + 4 * static_cast<Int64>(truth);
    const float sides[4] = {x - box[0], y - box[1], box[2] - x, box[3] - y};
    float longest = sides[0];
    bool known = true;  // no side is NaN
    for (const float side : sides) {
      known = known && side == side;
      longest = side > longest ? side : longest;
    }
    if (!known || !(longest >= level.low && longest <= level.high)) continue;
    const float off_x = x - center_x;
    const float off_y = y - center_y;
    // Roots are compared, as the original does: different squares may have the same root, and then
    // the first truth wins.
    const float distance = sqrtf(off_x * off_x + off_y * off_y);
    if (winner.truth < 0 || distance < winner.distance) winner = {truth, distance};
  }
  return winner;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kTargetThreads)
    paceline_fcos3d_targets(const __grid_constant__ Targets all) {
  Bits32 number = 0;
  while (number + 1 < all.levels && blockIdx.x >= all.level[number + 1].first_block) ++number;
  const TargetLevel& level = all.level[number];
  const Int64 at = static_cast<Int64>(blockIdx.x - level.first_block) * kTargetThreads +
                   static_cast<Int64>(threadIdx.x);
  if (at >= level.count * all.images) return;
  const Int64 point = at % level.count;
  const auto image = static_cast<int>(at / level.count);
  const float x = level.points[2 * point];
  const float y = level.points[2 * point + 1];
  const Winner winner = winner_of(all, level, x, y, all.offsets[image], all.offsets[image + 1]);
  const Int64 truth = winner.truth;
  const bool found = truth >= 0;
  const Int64 row = all.first_image * level.count + at;
  level.labels[row] = found ? all.labels[truth] : all.background;
  level.attributes[row] = found ? all.attributes[truth] : all.no_attribute;
  level.centerness[row] =
      found ? expf(-all.alpha * (winner.distance / (kDiagonal * level.radius))) : 0;
  float* const target = level.targets + row * all.columns;
  target[0] = found ? (x - all.centers[2 * truth]) / level.divisor : 0;
  target[1] = found ? (y - all.centers[2 * truth + 1]) / level.divisor : 0;
  for (Bits32 i = 2; i < all.columns; ++i)
    target[i] = found ? all.rest[truth * (all.columns - 2) + i - 2] : 0;
}

}  // namespace paceline::ops::device
