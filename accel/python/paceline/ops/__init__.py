# SPDX-License-Identifier: Apache-2.0
"""Operators of vision models: attention within windows, and operators of detection models that
keep no tensors of points times ground truths.

The library computes the latter for float32 tensors on the CPU, and `fcos3d_targets` and
`simota_assign` on a GPU, too; `window_attention` for 16-bit tensors on a GPU. Plain PyTorch
computes all else by the same rules: float64, other devices, subclasses of Tensor, and everything
where the library cannot be loaded or has no kernels. In that case the first call of each operator
writes one line on standard error. Operators of detection models compute float16 and bfloat16 in
float32, and have no gradients, since targets and assignments are constants of a step. Numerics
class: Reordered.
"""

from __future__ import annotations

from paceline.ops._fcos3d import FCOS3DHead, FCOS3DTargets, fcos3d_targets
from paceline.ops._simota import SimOTAAssignment, simota_assign
from paceline.ops._voxels import Voxels, voxelize
from paceline.ops._window import window_attention

__all__ = [
    "FCOS3DHead",
    "FCOS3DTargets",
    "SimOTAAssignment",
    "Voxels",
    "fcos3d_targets",
    "simota_assign",
    "voxelize",
    "window_attention",
]
