# SPDX-License-Identifier: Apache-2.0
"""Lists the operations of a step on the device, and finds what a captured step could not do: values
that the host reads, and operations that differ from step to step.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Folders whose code is not the program's. A message names the program's own line.
_NOT_THE_PROGRAMS = tuple(
    os.path.dirname(os.path.realpath(path)) + os.sep  # noqa: PTH120
    for path in (torch.__file__, os.path.dirname(__file__))  # noqa: PTH120
)

_READS = ("_local_scalar_dense", "is_nonzero", "equal")
# The size of their results is known on the device only.
_SIZED_BY_VALUES = (
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "bincount",
)
_COPIES = ("_to_copy", "copy_")


@dataclass(frozen=True)
class Operation:
    name: str  # of ATen
    of: tuple[Any, ...]  # shapes, types and devices of its tensors, and its numbers
    line: str  # of the program
    read: str  # what the host waits for; empty: nothing


class Watch(TorchDispatchMode):
    """Lists the operations on the devices of one type while it is entered."""

    def __init__(self, device_type: str) -> None:
        super().__init__()
        self.type = device_type
        self.operations: list[Operation] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        given = (*args, *kwargs.values())
        target = kwargs.get("device")
        if self._concerns(given) or (target is not None and torch.device(target).type == self.type):
            name = str(function).removeprefix("aten.")
            read = self._read(name.partition(".")[0], args, kwargs)
            described = tuple(_described(value) for value in given)
            self.operations.append(Operation(name, described, _line(), read))
        return function(*args, **kwargs)

    def _concerns(self, values: Sequence[Any]) -> bool:
        for value in values:
            if isinstance(value, torch.Tensor) and value.device.type == self.type:
                return True
            if isinstance(value, (list, tuple)) and self._concerns(value):
                return True
        return False

    def _read(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        if name in _READS:
            return (
                "reads a value on the host (.item(), float(), bool(), print, an `if` on a tensor)"
            )
        if name in _SIZED_BY_VALUES:
            return "makes a tensor whose size depends on values"
        if name == "repeat_interleave" and kwargs.get("output_size") is None:
            return (
                "makes a tensor whose size depends on values (give repeat_interleave its"
                " output_size)"
            )
        if name == "index" and any(
            isinstance(each, torch.Tensor) and each.dtype is torch.bool for each in args[1]
        ):
            return (
                "picks by a mask, so that the size depends on values (use torch.where or"
                " masked_fill)"
            )
        if name in _COPIES and self.type != "cpu":
            target = kwargs.get("device") if name == "_to_copy" else args[0].device
            if target is not None and torch.device(target).type == "cpu":
                return "copies a tensor to the host"
            source = args[0] if name == "_to_copy" else args[1]
            if source.device.type == "cpu" and source.numel() > 0:
                return "copies a tensor from the host (make it on the device once, before the step)"
        return ""


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), str(value.dtype)[6:], value.device.type
    if isinstance(value, (list, tuple)):
        return tuple(_described(each) for each in value)
    if value is None or isinstance(
        value, (bool, int, float, complex, str, torch.dtype, torch.device)
    ):
        return repr(value)  # NaN is not itself
    return type(value).__name__


def _line() -> str:
    frame = sys._getframe()  # in autograd's own thread there may be no frame of the program
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<") and not os.path.realpath(file).startswith(_NOT_THE_PROGRAMS):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "the backward pass"


def why_not(one: Sequence[Operation], other: Sequence[Operation]) -> str:
    """Returns why a step cannot be captured whose operations were `other`, and `one` in the step
    before; empty if it can.
    """
    for operation in other:
        if operation.read:
            return (
                f"{operation.name} at {operation.line} {operation.read}: a captured step runs"
                " without the host. Keep it on the device, or do it outside of the step"
            )
    for before, now in zip(one, other):
        if before.name != now.name:
            return (
                f"the step's path changed: it called {before.name} ({before.line}) and then"
                f" {now.name} ({now.line}) in its place. A captured step repeats one path: take"
                " decisions of Python out of it, or make them on the device (torch.where)"
            )
        if before.of != now.of:
            old, new = next(
                (pair for pair in zip(before.of, now.of) if pair[0] != pair[1]), (before.of, now.of)
            )
            return (
                f"{now.name} at {now.line} was given {_shown(old)} and then {_shown(new)}:"
                f" {_remedy(old, new)}"
            )
    if len(one) != len(other):
        longer = max(one, other, key=len)[min(len(one), len(other))]
        return (
            f"the step's path changed: it made {len(one)} operations and then {len(other)}; the"
            f" first in one alone is {longer.name} ({longer.line}). A captured step repeats one"
            " path: take decisions of Python out of it"
        )
    return ""


def _shown(value: Any) -> str:
    if (
        isinstance(value, tuple)
        and len(value) == 3
        and isinstance(value[0], tuple)
        and isinstance(value[1], str)
    ):
        return f"a tensor {value[0]} of {value[1]}"
    return (
        str(value)
        if not isinstance(value, tuple)
        else f"({', '.join(_shown(each) for each in value)})"
    )


def _remedy(old: Any, new: Any) -> str:
    if isinstance(old, str) and isinstance(new, str):
        return "a captured step repeats the number that it saw: keep it in a tensor on the device"
    return "a captured step has one shape: pad to it, or capture a step for each"
