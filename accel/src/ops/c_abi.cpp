// SPDX-License-Identifier: Apache-2.0
// The functions of ops.h. Each checks its arguments and makes one call; no exception leaves it. The
// Python layer has said in words what is wrong. These checks keep indices within the arrays, if the
// arrays are as large as ops.h says, which cannot be checked here.
#include <algorithm>
#include <new>

#include "checks.hpp"
#include "fcos3d.hpp"
#include "kernels.hpp"
#include "simota.hpp"
#include "voxels.hpp"

namespace ops = paceline::ops;

namespace {

using ops::are_offsets;
using ops::are_set;
using ops::is_good;
using ops::is_shape;
using ops::kMost;

bool is_good(const paceline_voxels& all) {
  constexpr std::int64_t kCells = std::int64_t{1} << 62;
  if (all.size != sizeof all || all.columns < 3 || !are_offsets(all.offsets, all.clouds))
    return false;
  std::int64_t cells = 1;
  for (const std::int64_t along : all.grid) {
    if (along < 1 || along > kMost || cells > kCells / along) return false;
    cells *= along;
  }
  const std::int64_t points = all.offsets[all.clouds];
  return all.voxel_offsets != nullptr && (points == 0 || are_set({all.points, all.voxel_of_point}));
}

// Whether there is room for the voxels that will be found.
bool has_room(const paceline_voxels& all) {
  return all.offsets[all.clouds] == 0 || all.max_voxels == 0 || are_set({all.coords, all.counts});
}

// Whether the voxels that were found can be filled.
bool can_fill(const paceline_voxels& all, const float* filled) {
  if (all.max_points < 1 || !are_offsets(all.voxel_offsets, all.clouds)) return false;
  const std::int64_t voxels = all.voxel_offsets[all.clouds];
  return is_shape({voxels, all.max_points, all.columns}) &&
         (voxels == 0 || are_set({all.counts, filled}));
}

}  // namespace

extern "C" {

int paceline_fcos3d_targets(const struct paceline_fcos3d* targets, int32_t threads) {
  if (targets == nullptr || !is_good(*targets)) return PACELINE_EINVAL;
  try {
    return ops::fcos3d_targets(*targets, threads);
  } catch (const std::bad_alloc&) {
    return PACELINE_ESYSTEM;
  }
}

int paceline_simota_assign(struct paceline_simota* assignment, int32_t threads) {
  // An assignment of another size may end before bad_score.
  if (assignment == nullptr || assignment->size != sizeof *assignment) return PACELINE_EINVAL;
  assignment->bad_score = -1;
  if (!is_good(*assignment) || !ops::has_labels(*assignment)) return PACELINE_EINVAL;
  try {
    return ops::simota_assign(ops::best_kernels(), *assignment, threads);
  } catch (const std::bad_alloc&) {
    return PACELINE_ESYSTEM;
  }
}

int paceline_voxels_number(const struct paceline_voxels* voxels, int32_t threads) {
  if (voxels == nullptr || !is_good(*voxels) || !has_room(*voxels)) return PACELINE_EINVAL;
  try {
    return ops::number_voxels(*voxels, threads);
  } catch (const std::bad_alloc&) {
    return PACELINE_ESYSTEM;
  }
}

int paceline_voxels_fill(const struct paceline_voxels* voxels, float* filled, int32_t threads) {
  if (voxels == nullptr || !is_good(*voxels) || !can_fill(*voxels, filled)) return PACELINE_EINVAL;
  try {
    return ops::fill_voxels(*voxels, filled, threads);
  } catch (const std::bad_alloc&) {
    return PACELINE_ESYSTEM;
  }
}

}  // extern "C"
