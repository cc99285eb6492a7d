// SPDX-License-Identifier: Apache-2.0
// The functions of ops.h. Each checks its arguments and makes one call; no exception leaves it. The
// Python layer has said in words what is wrong. These checks keep indices within the arrays, if the
// arrays are as large as ops.h says, which cannot be checked here.
#include <algorithm>
#include <initializer_list>
#include <limits>
#include <new>
#include <span>

#include "fcos3d.hpp"
#include "kernels.hpp"
#include "simota.hpp"
#include "voxels.hpp"

namespace ops = paceline::ops;

namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kElements = std::int64_t{1} << 60;  // of an array; memory is smaller

// Whether these are offsets of so many groups: from 0, never falling, of at most kMost elements.
bool are_offsets(const std::int64_t* offsets, std::int64_t groups) {
  if (groups < 0 || groups > kMost || offsets == nullptr || offsets[0] != 0) return false;
  const std::span all(offsets, static_cast<std::size_t>(groups) + 1);
  return std::is_sorted(all.begin(), all.end()) && all.back() <= kMost;
}

// Whether an array of this shape can exist, so that its indices do not overflow.
bool is_shape(std::initializer_list<std::int64_t> shape) {
  std::int64_t size = 1;
  for (const std::int64_t along : shape) {
    if (along < 0 || (along > 0 && size > kElements / along)) return false;
    size *= std::max<std::int64_t>(along, 1);
  }
  return true;
}

bool are_set(std::initializer_list<const void*> arrays) {
  return std::find(arrays.begin(), arrays.end(), nullptr) == arrays.end();
}

bool is_good(const paceline_fcos3d& all) {
  if (all.size != sizeof all || all.columns < 2 || !are_offsets(all.offsets, all.images) ||
      (all.levels > 0 && all.level == nullptr))
    return false;
  if (all.offsets[all.images] > 0 &&
      (!are_set({all.centers, all.boxes, all.labels, all.attributes}) ||
       (all.columns > 2 && all.rest == nullptr)))
    return false;
  return std::all_of(all.level, all.level + all.levels, [&](const paceline_fcos3d_level& level) {
    return level.count >= 0 && level.count <= kMost && level.radius > 0 &&
           is_shape({all.levels, all.images, level.count, all.columns}) &&
           (level.count == 0 || level.points != nullptr) &&
           (level.count == 0 || all.images == 0 ||
            are_set({level.labels, level.targets, level.centerness, level.attributes}));
  });
}

bool is_good(const paceline_simota& all) {
  if (all.topk < 1 || all.priors < 0 || all.priors > kMost ||
      !are_offsets(all.offsets, all.images) || !is_shape({all.images, all.priors, all.classes}))
    return false;
  const bool any = all.images > 0 && all.priors > 0;
  if ((all.priors > 0 && all.places == nullptr) ||
      (any && !are_set({all.boxes, all.winners, all.winner_labels, all.overlaps})) ||
      (any && all.classes > 0 && all.scores == nullptr) ||
      (all.offsets[all.images] > 0 && !are_set({all.truths, all.labels})))
    return false;
  return std::all_of(all.labels, all.labels + all.offsets[all.images],
                     [&](std::int64_t label) { return label >= 0 && label < all.classes; });
}

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
  if (!is_good(*assignment)) return PACELINE_EINVAL;
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
