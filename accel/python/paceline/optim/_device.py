# SPDX-License-Identifier: Apache-2.0
"""The optimizers of libpaceline.so on GPUs (paceline/optim_device.h). A `Plan` is made once of an
optimizer's parameters and state, and serves every step until one of them changes. A step reads the
addresses of gradients and launches on the current stream. Nothing waits, and nothing is copied
between host and device.
"""

from __future__ import annotations

import array
import ctypes
import functools
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Callable

import torch

from paceline._core import library
from paceline._core.tensors import index_of, stream_of
from paceline.optim import _native, _report, _sharded
from paceline.optim._cache import CachedTable
from paceline.optim._native import Group, Table, Tensor
from paceline.optim._settings import AddGroup, Settings

KIND = "cuda"  # the type of devices that this module serves
SKIP_NOT_FINITE = 1
_REFUSED, _PARTIAL = -8, -9


class Call(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("device", ctypes.c_int32),
        ("group_count", ctypes.c_uint32),
        ("groups", ctypes.c_void_p),
        ("tensors", ctypes.c_void_p),
        ("tensor_count", ctypes.c_uint64),
        ("grads", ctypes.c_void_p),
        ("group_lr", ctypes.c_void_p),
        ("table", ctypes.c_void_p),
        ("table_bytes", ctypes.c_uint64),
        ("stream", ctypes.c_void_p),
        ("grad_scale", ctypes.c_void_p),
        ("found_inf", ctypes.c_void_p),
        ("found_inf_out", ctypes.c_void_p),
        ("norm_out", ctypes.c_void_p),
        ("max_grad_norm", ctypes.c_double),
    ]


class Functions:
    """The exported functions, typed. Raises OSError or AttributeError if the library has none."""

    def __init__(self) -> None:
        function = functools.partial(library.typed, library.opened())
        pointer, size, sizes = ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64)
        self.open = function(
            "paceline_optim_device_open", ctypes.c_int32, ctypes.c_char_p, ctypes.c_char_p, size
        )
        self.table = function(
            "paceline_optim_device_table",
            pointer,
            ctypes.c_uint32,
            pointer,
            size,
            pointer,
            sizes,
            sizes,
        )
        self.step = function("paceline_optim_device_step", ctypes.POINTER(Call))
        self.counts_are = function("paceline_optim_counts_are", pointer, pointer, size)
        self.count = function("paceline_optim_count", pointer, pointer, pointer, size)


@functools.cache
def functions() -> Functions:
    return Functions()


@functools.cache
def why_unavailable(index: int) -> str:
    """Returns why the library cannot update on this device, or an empty text."""
    return _native.why_unavailable() or library.why_no_kernels(
        lambda *arguments: functions().open(*arguments), index
    )


def is_capturing() -> bool:
    return torch.cuda.is_current_stream_capturing()


def why_not(optimizer: Any, group: dict[str, Any], parameter: Tensor, device: torch.device) -> str:
    """Returns why PyTorch has to update this parameter on this device, or an empty text."""
    if parameter.device != device:
        return "parameters on several devices"
    if group.get("differentiable"):
        return "differentiable=True"
    if group.get("dampening"):
        # Only the device knows whether a buffer holds something, and PyTorch's state cannot say it.
        return "dampening on a GPU"
    why = optimizer._why_not(parameter, parameter.grad, device.type)
    if why:
        return why
    return (
        ""
        if _native.is_dense(_sharded.local(parameter.detach()))
        else "a parameter with gaps in its memory"
    )


@dataclass
class Asked:
    """What a step does beside the update. All but the limit are scalars on any device, or None."""

    max_grad_norm: float | None = None
    grad_scale: Tensor | None = None  # gradients are divided by it
    found_inf: Tensor | None = None  # not 0: nothing changes
    # On the device: set to 1 if a gradient is not finite, and nothing changes then.
    found_inf_out: Tensor | None = None


class Plan(CachedTable):
    """The table of one optimizer on one device. It begins as a list of rows, as for the CPU; seal()
    brings it to the device.
    """

    def __init__(self, device: torch.device, add_group: AddGroup) -> None:
        super().__init__(Settings(device, add_group))
        self.device = device
        self.index = index_of(device)
        self.grad_norm: Tensor | None = None  # of the last step with max_grad_norm: on the device
        # Each of the gradients asked for last was there, and like the one that the table was made
        # for.
        self.all_given = False
        # Tensors on the device that kernels write, and that belong neither to the optimizer nor to
        # the table.
        self.beside: list[Tensor] = []

    def begin(self, optimizer: Any, group: dict[str, Any]) -> None:
        """Sets the group of all rows that are added from now on. Called for all groups of the
        optimizer, so that a group's number is its place.
        """
        self._settings.add(optimizer, self, group)

    def seal(self, optimizer: Any) -> None:
        self.remember(optimizer)
        # An empty gradient has no address, but counts as a gradient.
        self._empty = [
            index for index, part in enumerate(self._parts(self.written)) if part.numel() == 0
        ]
        image_bytes, table_bytes = ctypes.c_uint64(), ctypes.c_uint64()
        groups = (Group * len(self._groups))(*self._groups)
        rows = self._address()

        def fill(image: int) -> None:
            sizes = (ctypes.byref(image_bytes), ctypes.byref(table_bytes))
            _check(functions().table(groups, len(groups), rows, len(self), image, *sizes))

        fill(0)
        on_device = self.device.type == "cuda"
        # Kept as long as the table: the copy may be captured, and a graph reads it again at each
        # replay.
        self._image = torch.empty(
            image_bytes.value, dtype=torch.uint8, device="cpu", pin_memory=on_device
        )
        fill(self._image.data_ptr())
        # With room for an aligned beginning, whoever allocates.
        self._table = torch.empty(table_bytes.value + 256, dtype=torch.uint8, device=self.device)
        begin = -self._table.data_ptr() % 256
        self._table[begin : begin + image_bytes.value].copy_(self._image, non_blocking=True)
        self._stream = stream_of(self.device)
        self._norm_out = torch.zeros((), dtype=torch.float64, device=self.device)
        self.call = Call(size=ctypes.sizeof(Call), device=self.index, group_count=len(groups))
        self.call.tensors, self.call.tensor_count = rows, len(self)
        self.call.table, self.call.table_bytes = self._table.data_ptr() + begin, table_bytes.value
        self.call.grads = self._pointers.buffer_info()[0]
        self._asked: tuple[float | None, tuple[int, ...]] | None = None

    def take_gradients(self) -> bool:
        """Takes the parameters' gradients for the next step. Returns false if one of them is of
        another kind than when the table was made.
        """
        self.stepping = self.written
        whole = self.gradients_now()
        if self.lie_apart(whole):
            return False
        # Held until the step is launched.
        self._held: Collection[Tensor | None] = self._parts(whole)
        self.all_given = self._gradients.set_addresses(self._held, self._pointers)
        if self.all_given:
            return True
        grads = self._gradients.laid_out(self._held, self._parts(self.written))
        if grads is None:
            return False
        self._held = grads
        self.stepping = [
            parameter for parameter, grad in zip(self.written, grads) if grad is not None
        ]
        self._pointers[:] = array.array(
            "Q", [0 if grad is None else grad.data_ptr() for grad in grads]
        )
        return True

    def step_with(self, asked: Asked) -> None:
        """Launches the step, with the gradients that were taken and the groups that were read."""
        self.done = False
        call = self.call
        for index in self._empty:
            self._pointers[index] = 1 if self.written[index].grad is not None else 0
        stream = stream_of(self.device)
        if stream != self._stream and self.device.type == "cuda":
            # The table must not be freed before this stream's steps are done.
            for one in (self._table, self._norm_out, *self.beside):
                one.record_stream(torch.cuda.current_stream(self.device))
        scale, found_inf = self._scalar(asked.grad_scale), self._scalar(asked.found_inf)
        limit = asked.max_grad_norm
        pointers = (
            *self._settings.where,
            stream,
            *map(_place_of, (scale, found_inf, asked.found_inf_out)),
        )
        if (limit, pointers) != self._asked:  # otherwise the call already has them
            self._asked = limit, pointers
            (
                call.groups,
                call.group_lr,
                call.stream,
                call.grad_scale,
                call.found_inf,
                call.found_inf_out,
            ) = pointers
            call.flags = SKIP_NOT_FINITE if call.found_inf_out else 0
            call.max_grad_norm = limit or 0.0
            call.norm_out = None if limit is None else self._norm_out.data_ptr()
        status = functions().step(ctypes.byref(call))
        self.done = status in (0, _PARTIAL)
        _check(status)
        self.grad_norm = None if limit is None else self._norm_out
        self._held = []
        _native.mark_written(self.stepping)
        self.read_versions()

    def _scalar(self, value: Tensor | None) -> Tensor | None:
        return None if value is None else value.to(device=self.device, dtype=torch.float32)


def _place_of(scalar: Tensor | None) -> int:
    return 0 if scalar is None else scalar.data_ptr()


def _check(status: int) -> None:
    if status in (_REFUSED, _PARTIAL):
        updated = "some" if status == _PARTIAL else "no"
        raise RuntimeError(
            f"paceline.optim: the driver refused to launch an optimizer's kernel; {updated} tensors"
            " were updated"
        )
    _native.check(status)


def fill(plan: Plan, optimizer: Any, add: Callable[[Table, dict[str, Any], Tensor], None]) -> Plan:
    """Adds all parameters that have a gradient, and copies the table to the device."""
    for group in optimizer.param_groups:
        plan.begin(optimizer, group)
        for parameter in group["params"]:
            if parameter.grad is not None:
                add(plan, group, parameter)
    plan.seal(optimizer)
    return plan


def _make(optimizer: Any, device: torch.device) -> Plan | None:
    outcome = _report.outcome_of(optimizer)
    why = why_unavailable(index_of(device))
    given = [
        (group, p)
        for group in optimizer.param_groups
        for p in group["params"]
        if p.grad is not None
    ]
    why = why or next(
        filter(None, (why_not(optimizer, group, p, device) for group, p in given)), ""
    )
    if why:
        outcome.device = f"not on the GPU ({why})"
        return None
    if is_capturing():
        raise RuntimeError(
            "paceline.optim: the first step, and one after parameters, state or gradients' types"
            " have changed, cannot be captured: make one step before the capture"
        )
    outcome.device = ""
    return fill(Plan(device, type(optimizer)._add_group), optimizer, optimizer._add)


def _over_ranks(asked: Asked, grads: list[Any]) -> tuple[Asked, Tensor | None]:
    """Returns what to ask of the kernels if each rank has a part of the gradients, and the norm if
    it is wanted. The norm is of all ranks, so PyTorch computes it. Clipping becomes a part of the
    number that gradients are divided by. Nothing waits.
    """
    if asked.max_grad_norm is None and asked.found_inf_out is None:
        return asked, None
    norm = _sharded.squares(grads).sqrt()
    divisor = torch.ones_like(norm) if asked.grad_scale is None else asked.grad_scale.to(norm)
    norm = norm / divisor
    found_inf = asked.found_inf
    if asked.found_inf_out is not None:
        asked.found_inf_out.copy_(~norm.isfinite())
        found_inf = asked.found_inf_out if found_inf is None else found_inf + asked.found_inf_out
    if asked.max_grad_norm is None:
        return Asked(None, asked.grad_scale, found_inf), None
    return (
        Asked(None, divisor / (asked.max_grad_norm / (norm + 1e-6)).clamp(max=1.0), found_inf),
        norm,
    )


def _asked_of(optimizer: Any) -> Asked:
    scale, found_inf = getattr(optimizer, "grad_scale", None), getattr(optimizer, "found_inf", None)
    if scale is not None or found_inf is not None:
        scale, found_inf = _sharded.whole(scale), _sharded.whole(found_inf)
    return Asked(optimizer.max_grad_norm, scale, found_inf, optimizer.found_inf_out)


def step(optimizer: Any) -> bool:
    """Makes the step if all parameters with a gradient are on one GPU, and the library can update
    them. Returns whether it did. While no tensor changes, the last step's plan serves.
    """
    asked, norm = _asked_of(optimizer), None  # may run other code, so it comes first
    plan = optimizer._plan
    if plan is None or not plan.fits(optimizer) or not plan.take_gradients():
        first = next(
            (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None),
            None,
        )
        if first is None or first.device.type != KIND:
            return False
        with torch.no_grad():
            plan = optimizer._plan = _make(optimizer, first.device)
        if plan is None:
            return False
        plan.take_gradients()
    elif not plan.stepping:
        return False
    if plan.sharded:
        with torch.no_grad():
            asked, norm = _over_ranks(asked, [p.grad for p in plan.written if p.grad is not None])
    plan.step_with(asked)
    if optimizer.max_grad_norm is not None:
        optimizer.grad_norm = plan.grad_norm if norm is None else norm
    outcome = _report.outcome_of(optimizer)
    outcome.fused, outcome.elsewhere, outcome.where = len(plan), {}, "the GPU"
    return True
