# SPDX-License-Identifier: Apache-2.0
"""The operators of libpaceline.so on GPUs (paceline/ops_device.h). A call launches on the current
stream. Nothing waits, and nothing is copied between host and device.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import torch

from paceline._core import library
from paceline._core.log import say_once
from paceline._core.tensors import index_of, stream_of, why_transformed
from paceline.ops import _native
from paceline.ops._native import REAL, Assignment, Targets, count, number, pointer, real

Tensor = torch.Tensor
KIND = "cuda"  # the type of devices that this module serves
MOST_LEVELS = 8
MOST_TOKENS, HEAD_DIM = 64, 32
PANEL_BYTES = 16  # what addresses of attention are multiples of
REFUSED = -8
TYPES = {torch.float16: 0, torch.bfloat16: 1}


class Attention(ctypes.Structure):
    _fields_ = [
        ("size", count),
        ("type", count),
        ("windows", number),
        ("masks", number),
        ("tokens", number),
        ("heads", number),
        ("entries", number),
        ("window_stride", number),
        ("token_stride", number),
        ("slots", number),
        ("q", pointer),
        ("k", pointer),
        ("v", pointer),
        ("table", pointer),
        ("index", pointer),
        ("mask", pointer),
        ("out", pointer),
        ("out_grad", pointer),
        ("q_grad", pointer),
        ("k_grad", pointer),
        ("v_grad", pointer),
        ("table_grad", pointer),
        ("sums", pointer),
        ("scale", real),
        ("reserved", count),
    ]


class Functions:
    """The exported functions, typed. Raises OSError or AttributeError if the library has none."""

    def __init__(self) -> None:
        function = functools.partial(library.typed, library.opened())
        device, attention = ctypes.c_int32, ctypes.POINTER(Attention)
        self.open = function(
            "paceline_ops_device_open", device, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64
        )
        self.fcos3d_targets = function(
            "paceline_fcos3d_targets_device", ctypes.POINTER(Targets), device, pointer
        )
        self.simota_assign = function(
            "paceline_simota_assign_device", ctypes.POINTER(Assignment), pointer, device, pointer
        )
        self.attention_forward = function("paceline_attention_forward", attention, device, pointer)
        self.attention_backward = function(
            "paceline_attention_backward", attention, device, pointer
        )


@functools.cache
def functions() -> Functions:
    return Functions()


@functools.cache
def why_unavailable(index: int) -> str:
    """Returns why the library has no kernels for this device, or an empty text."""
    return library.why_unavailable(functions) or library.why_no_kernels(functions().open, index)


def takes(operator: str, tensors: Sequence[Tensor]) -> bool:
    """Whether the library has kernels for the device of all these tensors."""
    return lie_together(tensors) and has_kernels(operator, tensors[0].device)


def lie_together(tensors: Sequence[Tensor]) -> bool:
    """Whether these are the memory that they show, on one device."""
    device = tensors[0].device
    return all(type(each) in REAL and each.device == device for each in tensors)


def has_kernels(operator: str, device: torch.device) -> bool:
    if device.type != KIND or why_transformed():
        return False
    if why := why_unavailable(index_of(device)):
        say_once(f"ops.{operator} runs in plain PyTorch: {why}")
    return not why


def _tell_what_came_before(device: torch.device) -> None:
    """Raises PyTorch's own error if the device has failed before: the driver tells it in answer to
    whatever is asked next.
    """
    if torch.cuda.is_available() and not torch.cuda.is_current_stream_capturing():
        torch.cuda.synchronize(device)


def launch(function: Any, argument: Any, device: torch.device, *others: Any) -> None:
    """Launches on the current stream. Raises RuntimeError where the driver refuses."""
    code = function(ctypes.byref(argument), *others, index_of(device), stream_of(device))
    if code == REFUSED:
        _tell_what_came_before(device)
        raise RuntimeError(f"paceline.ops: the driver refused a launch on {device}")
    _native.must(code)
