# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments. Each error names the argument, its value, and what to pass instead."""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Sequence
from typing import Any, Union

import torch

from paceline._core.tensors import why_transformed

Tensor = torch.Tensor
Offsets = Union[Tensor, Sequence[int]]
HALVES = (torch.float16, torch.bfloat16)
MOST = 2**31 - 1  # rows that the library counts


def tensor(name: str, value: Any, *shape: int | str) -> Tensor:
    """Returns the tensor if it has this shape, where a word stands for any size."""
    if not isinstance(value, torch.Tensor):
        kind = type(value).__name__
        raise TypeError(f"{name} is a {kind}: pass a tensor of shape {_shown(shape)}")
    sizes = value.shape
    fits = len(sizes) == len(shape)
    for wanted, own in zip(shape, sizes):
        if not isinstance(wanted, str) and wanted != own:
            fits = False
    if not fits:
        raise ValueError(f"{name} has shape {tuple(sizes)}: pass one of shape {_shown(shape)}")
    if value.layout is not torch.strided and value.numel() > 0:
        raise ValueError(f"{name} has layout {value.layout}: pass {name}.to_dense()")
    return value


def _shown(shape: tuple[int | str, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def floats(name: str, value: Any, *shape: int | str) -> Tensor:
    """A tensor of floating-point numbers, without its gradient."""
    found = tensor(name, value, *shape)
    if not found.is_floating_point():
        raise TypeError(f"{name} has dtype {found.dtype}: pass {name}.float()")
    return _without_gradient(found)


def integers(name: str, value: Any, *shape: int | str) -> Tensor:
    """A tensor of whole numbers, as int64."""
    found = tensor(name, value, *shape)
    if found.is_floating_point() or found.is_complex() or found.dtype is torch.bool:
        raise TypeError(f"{name} has dtype {found.dtype}: pass {name}.long()")
    return cast(found, torch.int64)


def _without_gradient(value: Tensor) -> Tensor:
    """Asks first: detach() makes another tensor in any case."""
    return value.detach() if value.requires_grad or why_transformed() else value


def cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Asks first: a call of to() that changes nothing takes ten times as long."""
    return value if value.dtype is dtype else value.to(dtype)


def as_float32(value: float) -> float:
    """The nearest number of 32 bits."""
    return float(ctypes.c_float(value).value)


def real(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}: pass a number") from None


def number(
    name: str,
    value: Any,
    least: float = -math.inf,
    *,
    open_end: bool = False,
    narrow: bool = False,
) -> float:
    """A finite number of at least `least`, or above it. With `narrow` it is so in float32, too."""
    found = own = real(name, value)
    where = ""
    if narrow and _is_from(found, least, open_end):
        own, where = as_float32(found), " in float32"
    if not _is_from(own, least, open_end):
        bound = "" if least == -math.inf else f" {'above' if open_end else 'of at least'} {least:g}"
        shown = f"{value}, which is {own:g}{where}" if where else value
        raise ValueError(f"{name} is {shown}: pass a finite number{bound}{where}")
    return found


def _is_from(value: float, least: float, open_end: bool) -> bool:
    return (value > least if open_end else value >= least) and math.isfinite(value)


def whole(name: str, value: Any, least: int = 1, most: int = MOST, other: str = "") -> int:
    """A whole number from `least` to `most`. `other` says what else may be passed."""
    try:
        found = operator.index(value)
    except TypeError:
        remedy = f"pass a whole number from {least} to {most}{other}"
        raise TypeError(f"{name} is {value!r}: {remedy}") from None
    if not least <= found <= most:
        raise ValueError(f"{name} is {found}: pass a whole number from {least} to {most}{other}")
    return found


def offsets_of(offsets: Offsets, total: int, of: str) -> list[int]:
    """Where each group of rows begins, and the end. `of` names the rows."""
    remedy = f"pass 0 and the running sums of the numbers of rows of {of}"
    most = max(MOST, total)
    if isinstance(offsets, torch.Tensor):
        found: list[Any] = integers("offsets", offsets, "groups + 1").tolist()
    else:
        try:
            given = list(offsets)
        except TypeError:
            raise TypeError(f"offsets is a {type(offsets).__name__}: {remedy}") from None
        found = [whole(f"offsets[{i}]", each, 0, most) for i, each in enumerate(given)]
    if len(found) == 0:
        raise ValueError(f"offsets is empty: {remedy}")
    if found[0] != 0:
        raise ValueError(f"offsets starts with {found[0]}: {remedy}")
    for i, (begin, end) in enumerate(zip(found, found[1:])):
        if end < begin:
            raise ValueError(f"offsets falls from {begin} to {end} at {i + 1}: {remedy}")
    if found[-1] != total:
        raise ValueError(f"offsets ends with {found[-1]}, but {of} has {total} rows: {remedy}")
    at_most(total, of, "rows")
    return found


def at_most(size: int, of: str, what: str) -> None:
    """Refuses sizes that the library cannot count: so many rows, or others, of an argument."""
    if size > MOST:
        raise ValueError(f"{of} has {size} {what}: pass at most {MOST} a call")


def alike(first: str, base: Tensor, others: dict[str, Tensor]) -> None:
    """Refuses tensors on another device than the first."""
    for name, other in others.items():
        if other.device != base.device:
            raise ValueError(
                f"{name} is on {other.device} and {first} on {base.device}:"
                f" pass {name}.to({str(base.device)!r})"
            )


def computed_in(base: Tensor) -> torch.dtype:
    """The dtype that the operator computes in."""
    return torch.float32 if base.dtype in HALVES else base.dtype
