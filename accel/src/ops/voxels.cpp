// SPDX-License-Identifier: Apache-2.0
#include "voxels.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>
#include <new>
#include <vector>

#include "base/parallel.hpp"

namespace paceline::ops {
namespace {

using std::int32_t;
using std::int64_t;
using std::size_t;
using std::uint64_t;

constexpr int kAxes = 3;
constexpr int kCoords = 4;  // cloud, z, y, x
constexpr int64_t kOut = -1;

// The rows of the voxels that have been seen, by open addressing at a load of at most one half.
class Rows {
 public:
  explicit Rows(int64_t most)
      : slots_(std::bit_ceil(2 * static_cast<size_t>(most) + 2)),
        shift_(64 - std::countr_zero(slots_.size())) {}

  // Returns the slot of a cell; its row is kFree if the cell is new.
  struct Slot {
    int64_t cell = kFree;
    int64_t row = kFree;
  };
  Slot& find(int64_t cell) {
    size_t place = place_of(cell);
    while (slots_[place].row != kFree && slots_[place].cell != cell)
      place = (place + 1) & (slots_.size() - 1);
    return slots_[place];
  }
  void prefetch(int64_t cell) const { __builtin_prefetch(&slots_[place_of(cell)]); }
  static constexpr int64_t kFree = -1;

 private:
  // Fibonacci hashing spreads neighbours, which differ in the lowest bits.
  size_t place_of(int64_t cell) const {
    return (static_cast<uint64_t>(cell) * 0x9e3779b97f4a7c15U) >> shift_;
  }

  std::vector<Slot> slots_;
  int shift_;
};

int64_t cap(const paceline_voxels& all, int64_t cloud) {
  const int64_t points = all.offsets[cloud + 1] - all.offsets[cloud];
  return all.max_voxels < 0 ? points : std::min(points, all.max_voxels);
}

// One cloud. Rows begin at `first_row`, where the cloud has room for `cap` of them.
class Cloud {
 public:
  Cloud(const paceline_voxels& all, int64_t cloud, int64_t first_row)
      : all_(all), cloud_(cloud), first_row_(first_row), most_(cap(all, cloud)), rows_(most_) {}

  // Returns the number of voxels.
  int64_t number() {
    // A block's cells are computed before they are looked up, so that one point's memory access
    // overlaps with the next one's.
    std::array<int64_t, kBlock> cells;
    for (int64_t begin = all_.offsets[cloud_]; begin < all_.offsets[cloud_ + 1]; begin += kBlock) {
      const int64_t size = std::min(kBlock, all_.offsets[cloud_ + 1] - begin);
      for (int64_t i = 0; i < size; ++i) {
        cells[static_cast<size_t>(i)] = cell_of(all_.points + (begin + i) * all_.columns);
        rows_.prefetch(cells[static_cast<size_t>(i)]);
      }
      for (int64_t i = 0; i < size; ++i) {
        const int64_t cell = cells[static_cast<size_t>(i)];
        const int64_t row = cell == kOut ? kOut : row_of(cell);
        all_.voxel_of_point[begin + i] = row;
        if (row == kOut) continue;
        int32_t& count = all_.counts[row];
        if (all_.max_points < 0 || count < all_.max_points) ++count;
      }
    }
    return count_;
  }

 private:
  static constexpr int64_t kBlock = 64;

  int64_t cell_of(const float* point) const {
    int64_t cell = 0;
    bool inside = true;
    for (int axis = kAxes - 1; axis >= 0; --axis) {
      const float steps = (point[axis] - all_.low[axis]) / all_.voxel[axis];
      // NaN is nowhere. What is not negative is rounded down by a conversion.
      const bool along =
          (steps >= 0.0F) & (static_cast<double>(steps) < static_cast<double>(all_.grid[axis]));
      cell = cell * all_.grid[axis] + static_cast<int64_t>(along ? steps : 0.0F);
      inside &= along;
    }
    return inside ? cell : kOut;
  }

  // Returns the row of a cell, a new one if there is room, or kOut.
  int64_t row_of(int64_t cell) {
    Rows::Slot& slot = rows_.find(cell);
    if (slot.row != Rows::kFree) return slot.row;
    if (count_ == most_) return kOut;
    slot = {.cell = cell, .row = first_row_ + count_++};
    all_.counts[slot.row] = 0;
    int32_t* coords = all_.coords + kCoords * slot.row;
    coords[0] = static_cast<int32_t>(cloud_);
    for (int axis = 0; axis < kAxes; ++axis) {
      coords[kAxes - axis] = static_cast<int32_t>(cell % all_.grid[axis]);
      cell /= all_.grid[axis];
    }
    return slot.row;
  }

  const paceline_voxels& all_;
  int64_t cloud_, first_row_, most_;
  int64_t count_ = 0;
  Rows rows_;
};

// Closes the gap between the rows of this cloud and those of the clouds before it.
void close_gap(const paceline_voxels& all, int64_t cloud, int64_t from, int64_t count) {
  const int64_t to = all.voxel_offsets[cloud];
  all.voxel_offsets[cloud + 1] = to + count;
  if (from == to) return;
  const auto rows = static_cast<size_t>(count);
  std::memmove(all.coords + kCoords * to, all.coords + kCoords * from,
               rows * kCoords * sizeof(int32_t));
  std::memmove(all.counts + to, all.counts + from, rows * sizeof(int32_t));
  for (int64_t i = all.offsets[cloud]; i < all.offsets[cloud + 1]; ++i)
    if (all.voxel_of_point[i] != kOut) all.voxel_of_point[i] -= from - to;
}

// Returns how many places of a voxel are used. The caller may have changed `counts` or `max_points`
// since the voxels were numbered, so this keeps them within the voxel.
int64_t used_places(const paceline_voxels& all, int64_t row) {
  return std::clamp<int64_t>(all.counts[row], 0, all.max_points);
}

// Returns whether all points have a voxel of this cloud or none.
bool fill_cloud(const paceline_voxels& all, int64_t cloud, float* filled) {
  const int64_t first_row = all.voxel_offsets[cloud];
  const int64_t rows = all.voxel_offsets[cloud + 1] - first_row;
  std::vector<int32_t> used(static_cast<size_t>(rows), 0);
  bool good = true;
  for (int64_t i = all.offsets[cloud]; i < all.offsets[cloud + 1]; ++i) {
    const int64_t row = all.voxel_of_point[i];
    // Unsigned, so that one comparison finds kOut and what lies outside the cloud's rows.
    const uint64_t voxel = static_cast<uint64_t>(row) - static_cast<uint64_t>(first_row);
    if (voxel >= static_cast<uint64_t>(rows)) {
      good &= row == kOut;
      continue;
    }
    int32_t& place = used[voxel];
    if (place >= used_places(all, row)) continue;
    std::copy_n(all.points + i * all.columns, all.columns,
                filled + (row * all.max_points + place++) * all.columns);
  }
  for (int64_t row = first_row; row < first_row + rows; ++row) {
    const int64_t begin = row * all.max_points + used_places(all, row);
    std::fill(filled + begin * all.columns, filled + (row + 1) * all.max_points * all.columns,
              0.0F);
  }
  return good;
}

}  // namespace

int number_voxels(const paceline_voxels& all, int threads) {
  const auto clouds = static_cast<size_t>(all.clouds);
  std::vector<int64_t> begins(clouds + 1, 0);
  std::vector<int64_t> counts(clouds, 0);
  for (size_t i = 0; i < clouds; ++i) begins[i + 1] = begins[i] + cap(all, static_cast<int64_t>(i));
  std::atomic<bool> failed = false;
  base::parallel_for(all.clouds, threads, [&](int64_t cloud) {
    const auto i = static_cast<size_t>(cloud);
    try {
      counts[i] = Cloud(all, cloud, begins[i]).number();
    } catch (const std::bad_alloc&) {
      failed = true;
    }
  });
  if (failed) return PACELINE_ESYSTEM;
  all.voxel_offsets[0] = 0;
  for (size_t i = 0; i < clouds; ++i) close_gap(all, static_cast<int64_t>(i), begins[i], counts[i]);
  return PACELINE_OK;
}

int fill_voxels(const paceline_voxels& all, float* filled, int threads) {
  std::atomic<bool> failed = false;
  std::atomic<bool> refused = false;
  base::parallel_for(all.clouds, threads, [&](int64_t cloud) {
    try {
      if (!fill_cloud(all, cloud, filled)) refused = true;
    } catch (const std::bad_alloc&) {
      failed = true;
    }
  });
  if (failed) return PACELINE_ESYSTEM;
  return refused ? PACELINE_EINVAL : PACELINE_OK;
}

}  // namespace paceline::ops
