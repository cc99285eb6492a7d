# SPDX-License-Identifier: Apache-2.0
"""The operators of libpaceline.so (paceline/ops.h). A call gives up the interpreter lock."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any, Callable

import torch

from paceline._core import library
from paceline._core.log import say_once
from paceline._core.tensors import why_transformed

Tensor = torch.Tensor
NO_MEMORY = -4
REAL = (torch.Tensor, torch.nn.Parameter)
number, count, real, pointer = ctypes.c_int64, ctypes.c_uint32, ctypes.c_float, ctypes.c_void_p


class Level(ctypes.Structure):
    _fields_ = [
        ("points", pointer),
        ("count", number),
        ("radius", real),
        ("divisor", real),
        ("low", real),
        ("high", real),
        ("labels", pointer),
        ("targets", pointer),
        ("centerness", pointer),
        ("attributes", pointer),
    ]


class Targets(ctypes.Structure):
    _fields_ = [
        ("size", count),
        ("columns", count),
        ("levels", count),
        ("alpha", real),
        ("images", number),
        ("offsets", pointer),
        ("centers", pointer),
        ("boxes", pointer),
        ("rest", pointer),
        ("labels", pointer),
        ("attributes", pointer),
        ("background", number),
        ("no_attribute", number),
        ("level", ctypes.POINTER(Level)),
    ]


class Assignment(ctypes.Structure):
    _fields_ = [
        ("size", count),
        ("topk", count),
        ("images", number),
        ("priors", number),
        ("classes", number),
        ("boxes", pointer),
        ("scores", pointer),
        ("places", pointer),
        ("offsets", pointer),
        ("truths", pointer),
        ("labels", pointer),
        ("radius", ctypes.c_double),
        ("iou_weight", ctypes.c_double),
        ("cls_weight", ctypes.c_double),
        ("least_overlap", ctypes.c_double),
        ("winners", pointer),
        ("winner_labels", pointer),
        ("overlaps", pointer),
        ("bad_score", number),
    ]


class Clouds(ctypes.Structure):
    _fields_ = [
        ("size", count),
        ("columns", count),
        ("clouds", number),
        ("offsets", pointer),
        ("points", pointer),
        ("low", real * 3),
        ("voxel", real * 3),
        ("grid", number * 3),
        ("max_voxels", number),
        ("max_points", number),
        ("voxel_of_point", pointer),
        ("coords", pointer),
        ("counts", pointer),
        ("voxel_offsets", pointer),
    ]


class Functions:
    """The exported functions, typed. Raises OSError or AttributeError if the library has none."""

    def __init__(self) -> None:
        function = functools.partial(library.typed, library.opened())
        self.fcos3d_targets = function(
            "paceline_fcos3d_targets", ctypes.POINTER(Targets), ctypes.c_int32
        )
        self.simota_assign = function(
            "paceline_simota_assign", ctypes.POINTER(Assignment), ctypes.c_int32
        )
        self.voxels_number = function(
            "paceline_voxels_number", ctypes.POINTER(Clouds), ctypes.c_int32
        )
        self.voxels_fill = function(
            "paceline_voxels_fill", ctypes.POINTER(Clouds), pointer, ctypes.c_int32
        )


@functools.cache
def functions() -> Functions:
    return Functions()


@functools.cache
def why_unavailable() -> str:
    """Returns why the library cannot be used, or an empty text."""
    return library.why_unavailable(functions)


def takes(operator: str, dtype: torch.dtype, tensors: Sequence[Tensor]) -> bool:
    """Whether the library computes this operator for these tensors, in this dtype.

    Subclasses such as FakeTensor and DTensor may hold no memory that the library could read.
    """
    if dtype is not torch.float32 or why_transformed():
        return False
    for each in tensors:
        if type(each) not in REAL or not each.is_cpu:
            return False
    if why := why_unavailable():
        say_once(f"ops.{operator} runs in plain PyTorch: {why}")
    return not why


def call(function: Callable[..., int], argument: Any, *others: Any) -> int:
    """Calls with as many threads as PyTorch uses. Raises MemoryError, and returns other codes."""
    code = function(ctypes.byref(argument), *others, torch.get_num_threads())
    if code == NO_MEMORY:
        raise MemoryError("paceline.ops: no memory for the working space of this batch")
    return code


def must(code: int) -> None:
    """Raises RuntimeError for a code: the checks of the Python layer have let something through."""
    if code != 0:
        raise RuntimeError(f"paceline.ops: the library refused its arguments (code {code})")
