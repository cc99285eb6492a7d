// SPDX-License-Identifier: Apache-2.0
// Checks of arguments that the functions of ops.h and ops_device.h share. Pure; nothing fails.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>

#include "paceline/ops.h"

namespace paceline::ops {

inline constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
inline constexpr std::int64_t kElements = std::int64_t{1} << 60;  // of an array; memory is smaller

// Whether these are offsets of so many groups: from 0, never falling, of at most kMost elements.
inline bool are_offsets(const std::int64_t* offsets, std::int64_t groups) {
  if (groups < 0 || groups > kMost || offsets == nullptr || offsets[0] != 0) return false;
  const std::span all(offsets, static_cast<std::size_t>(groups) + 1);
  return std::is_sorted(all.begin(), all.end()) && all.back() <= kMost;
}

// Whether an array of this shape can exist, so that its indices do not overflow.
inline bool is_shape(std::initializer_list<std::int64_t> shape) {
  std::int64_t size = 1;
  for (const std::int64_t along : shape) {
    if (along < 0 || (along > 0 && size > kElements / along)) return false;
    size *= std::max<std::int64_t>(along, 1);
  }
  return true;
}

inline bool are_set(std::initializer_list<const void*> arrays) {
  return std::find(arrays.begin(), arrays.end(), nullptr) == arrays.end();
}

inline bool is_good(const paceline_fcos3d& all) {
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

inline bool is_good(const paceline_simota& all) {
  if (all.size != sizeof all || all.topk < 1 || all.priors < 0 || all.priors > kMost ||
      !(all.least_overlap > 0) || !are_offsets(all.offsets, all.images) ||
      !is_shape({all.images, all.priors, all.classes}))
    return false;
  const bool any = all.images > 0 && all.priors > 0;
  if ((all.priors > 0 && all.places == nullptr) ||
      (any && !are_set({all.boxes, all.winners, all.winner_labels, all.overlaps})) ||
      (any && all.classes > 0 && all.scores == nullptr) ||
      (all.offsets[all.images] > 0 && !are_set({all.truths, all.labels})))
    return false;
  return true;
}

// Whether each label is a class.
inline bool has_labels(const paceline_simota& all) {
  return std::all_of(all.labels, all.labels + all.offsets[all.images],
                     [&](std::int64_t label) { return label >= 0 && label < all.classes; });
}

}  // namespace paceline::ops
