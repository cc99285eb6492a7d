# SPDX-License-Identifier: Apache-2.0
"""Hard voxelisation of mmcv, which mmdetection3d calls once for each LiDAR cloud.

The result is the original's to the bit, so only calls whose result is determined are taken. On a
GPU the original compares each point with all before it, and one thread then numbers the voxels.
The operator sorts instead. On the CPU the original fills a table of the whole grid, and only a
large one costs more than the operator.

Three kinds of calls are left, since nothing was found to gain. Dynamic voxelisation is one
elementwise kernel. With `deterministic=False` the original sorts, too, and its order is arbitrary.
An empty cloud has no voxels.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from paceline._inject.detection_forms import Call, Form, why_not_tensors

DYNAMIC = -1  # of either limit, as mmcv writes it
# Cells of the grid for each point from which on the operator was quicker on a CPU
# (docs/train/operators.md).
CELLS_A_POINT = 32


def _on_gpu(points: torch.Tensor) -> bool:
    return points.device.type != "cpu"


def _read(layer: Any, given: dict[str, Any], library: dict[str, Any]) -> Call | str:
    points = given["input"]
    # The original takes others on the CPU only, and float32 is what its users have.
    why = why_not_tensors((points,), (torch.float32,), points)
    if why:
        return why
    if library["voxelization"] != library["_Voxelization"].apply:
        return "a function that the program has replaced"
    max_points = layer.max_num_points
    max_voxels = layer.max_voxels[0 if layer.training else 1]
    if DYNAMIC in (max_points, max_voxels):
        return "dynamic voxelisation, which is one kernel"
    if not layer.deterministic:
        return "deterministic is off, and its way does not compare all points"
    if not len(points):
        return "a cloud without points"
    settings = points, layer.voxel_size, layer.point_cloud_range, max_points, max_voxels
    on_gpu = _on_gpu(points)

    def compute() -> Any:
        from paceline.ops import _voxels

        return _voxels.hard(*settings, nan_is_first=on_gpu)

    if not on_gpu:
        from paceline.ops import _voxels

        cells = math.prod(_voxels.grid_of(layer.voxel_size, layer.point_cloud_range).cells)
        if cells < CELLS_A_POINT * len(points):
            return "on a CPU, a grid so small that the library is quicker"
    return Call(points.device, compute, needs_kernels=not on_gpu)


# The two classes and what they call have the same code, in all releases but the first.
_CODE = "a724ae4ab1d82b7f5faf387e4754980f8e48e529b002020f8e2f229aa7a89b2c"
_CODE_OF_MMCV_1_5 = "4c1dda927d225ddf5ac174aefd72d0b7e377b552ffa7225b45457e3451b69ba9"


def _form(module: str, owner: str, release: str) -> Form:
    return Form(
        module=module,
        owner=owner,
        method="forward",
        signature=("self", "input"),
        helpers=(),
        read=_read,
        functions=("_Voxelization",),
        release=release,
        digests=(_CODE, _CODE_OF_MMCV_1_5),
    )


FORMS = (
    _form("mmcv.ops.voxelize", "Voxelization", "mmcv 1.5.0 to 2.2.0"),
    _form(
        "mmdet3d.models.data_preprocessors.voxelize",
        "VoxelizationByGridShape",
        "mmdetection3d 1.1.0 to 1.4.0",
    ),
)
