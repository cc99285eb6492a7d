# SPDX-License-Identifier: Apache-2.0
"""Operators of detection models that keep no tensors of points times ground truths.

The library computes float32 tensors on the CPU. Plain PyTorch computes all else by the same rules:
float64, other devices, subclasses of Tensor, and everything where the library cannot be loaded. In
that case the first call of each operator writes one line on standard error. float16 and bfloat16
are computed in float32. None has gradients, since targets and assignments are constants of a step.
Numerics class: Reordered.
"""

from __future__ import annotations

from paceline.ops._fcos3d import FCOS3DHead, FCOS3DTargets, fcos3d_targets
from paceline.ops._simota import SimOTAAssignment, simota_assign
from paceline.ops._voxels import Voxels, voxelize

__all__ = [
    "FCOS3DHead",
    "FCOS3DTargets",
    "SimOTAAssignment",
    "Voxels",
    "fcos3d_targets",
    "simota_assign",
    "voxelize",
]
