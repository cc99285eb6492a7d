# SPDX-License-Identifier: Apache-2.0
"""Classes with the names, arguments and results of those of mmcv that are patched. What they
compute is the loop of accel/tests/ops/originals.py.
"""

from __future__ import annotations

from typing import Any

import torch
from simota_fake import originals
from torch import nn
from torch.autograd import Function

Tensor = torch.Tensor
MODULE = "mmcv.ops.voxelize"
SIZE, SPAN = (0.5, 1.0, 2.0), (-2.0, -2.0, -1.0, 2.0, 2.0, 3.0)


class Kernels:
    """In the place of mmcv's compiled functions. `of_gpu`: its kernels for GPUs, which convert NaN
    to 0.
    """

    of_gpu = False

    def hard_voxelize_forward(
        self,
        points: Tensor,
        voxel_size: Tensor,
        coors_range: Tensor,
        voxels: Tensor,
        coors: Tensor,
        num_points_per_voxel: Tensor,
        voxel_num: Tensor,
        max_points: int,
        max_voxels: int,
        NDim: int = 3,
        deterministic: bool = True,
    ) -> None:
        if not deterministic and not self.of_gpu:
            raise RuntimeError("there is no such kernel for CPUs")
        low = coors_range[:NDim]
        grid = torch.round((coors_range[NDim:] - low) / voxel_size)
        places = points[:, :NDim]
        if self.of_gpu:
            places = torch.where(places.isnan(), low.to(places.dtype), places)
        marked = torch.cat((places, torch.arange(len(points), dtype=points.dtype)[:, None]), 1)
        group, _ = originals.voxels_by_loop(marked, voxel_size, low, grid, max_points, max_voxels)
        for row, count in enumerate(group.counts.tolist()):
            members = group.points[row, :count, NDim].long()
            voxels[row, :count] = points[members]
        coors[: len(group.coords)] = group.coords
        num_points_per_voxel[: len(group.counts)] = group.counts
        voxel_num.fill_(len(group.counts))

    def dynamic_voxelize_forward(
        self, points: Tensor, voxel_size: Tensor, coors_range: Tensor, coors: Tensor, NDim: int = 3
    ) -> None:
        low = coors_range[:NDim]
        grid = torch.round((coors_range[NDim:] - low) / voxel_size)
        cells, inside = originals.cells_of(points, voxel_size, low, grid)
        coors.copy_(torch.where(inside[:, None], cells.flip(1).int(), -1))


ext_module = Kernels()


class _Voxelization(Function):
    @staticmethod
    def forward(
        ctx: Any,
        points: Tensor,
        voxel_size: Any,
        coors_range: Any,
        max_points: int = 35,
        max_voxels: int = 20000,
        deterministic: bool = True,
    ) -> Any:
        size = torch.tensor(voxel_size, dtype=torch.float)
        span = torch.tensor(coors_range, dtype=torch.float)
        if -1 in (max_points, max_voxels):
            cells = points.new_zeros((len(points), 3), dtype=torch.int)
            ext_module.dynamic_voxelize_forward(points, size, span, cells, NDim=3)
            return cells
        voxels = points.new_zeros((max_voxels, max_points, points.size(1)))
        coors = points.new_zeros((max_voxels, 3), dtype=torch.int)
        counts = points.new_zeros((max_voxels,), dtype=torch.int)
        found = torch.zeros((), dtype=torch.long)
        ext_module.hard_voxelize_forward(
            points, size, span, voxels, coors, counts, found,
            max_points=max_points, max_voxels=max_voxels, NDim=3, deterministic=deterministic,
        )  # fmt: skip
        return voxels[:found], coors[:found], counts[:found]


voxelization = _Voxelization.apply


class Voxelization(nn.Module):
    def __init__(
        self,
        voxel_size: Any = SIZE,
        point_cloud_range: Any = SPAN,
        max_num_points: int = 2,
        max_voxels: Any = 20000,
        deterministic: bool = True,
    ) -> None:
        super().__init__()
        self.voxel_size, self.point_cloud_range = voxel_size, point_cloud_range
        self.max_num_points, self.deterministic = max_num_points, deterministic
        self.max_voxels = max_voxels if isinstance(max_voxels, tuple) else (max_voxels, max_voxels)

    def forward(self, input: Tensor) -> Any:
        most = self.max_voxels[0 if self.training else 1]
        return voxelization(
            input, self.voxel_size, self.point_cloud_range, self.max_num_points, most,
            self.deterministic,
        )  # fmt: skip
