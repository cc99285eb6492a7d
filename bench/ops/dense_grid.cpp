// SPDX-License-Identifier: Apache-2.0
// Hard voxelisation as mmcv does it on the CPU: the cell of every point, then a loop over the
// points with a table of the whole grid. Written by its behaviour; bench/ops/run compiles it.
#include <cmath>
#include <cstdint>
#include <vector>

extern "C" std::int64_t dense_grid(const float* points, std::int64_t count, std::int64_t columns,
                                   const float* low, const float* size, const std::int64_t* grid,
                                   std::int64_t max_points, std::int64_t max_voxels, float* filled,
                                   std::int32_t* coords, std::int32_t* counts) {
  std::vector<std::int32_t> cells(static_cast<std::size_t>(count) * 3, -1);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int32_t cell[3];
    bool inside = true;
    for (int axis = 0; axis < 3 && inside; ++axis) {
      const float steps = std::floor((points[i * columns + axis] - low[axis]) / size[axis]);
      inside = steps >= 0 && steps < static_cast<float>(grid[axis]);
      if (inside) cell[2 - axis] = static_cast<std::int32_t>(steps);
    }
    for (int axis = 0; axis < 3 && inside; ++axis) cells[i * 3 + axis] = cell[axis];
  }
  std::vector<std::int32_t> voxel_at(static_cast<std::size_t>(grid[0] * grid[1] * grid[2]), -1);
  std::int64_t voxels = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t* cell = &cells[i * 3];
    if (cell[0] < 0) continue;
    std::int32_t& voxel = voxel_at[(cell[0] * grid[1] + cell[1]) * grid[0] + cell[2]];
    if (voxel < 0) {
      if (voxels == max_voxels) continue;
      voxel = static_cast<std::int32_t>(voxels++);
      for (int axis = 0; axis < 3; ++axis) coords[voxel * 3 + axis] = cell[axis];
    }
    if (counts[voxel] == max_points) continue;
    float* place = filled + (voxel * max_points + counts[voxel]++) * columns;
    for (std::int64_t column = 0; column < columns; ++column)
      place[column] = points[i * columns + column];
  }
  return voxels;
}
