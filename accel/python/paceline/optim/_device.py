# SPDX-License-Identifier: Apache-2.0
"""The optimizers of libpaceline.so on GPUs (paceline/optim_device.h): a `Plan` is made once of an optimizer's parameters and state, and
serves every step until one of them is another tensor. A step reads the addresses of gradients and launches on the current stream;
nothing waits, and nothing is copied between host and device."""

from __future__ import annotations

import array
import ctypes
import functools
import operator
import struct
from dataclasses import dataclass
from typing import Any, Callable

import torch

from paceline import _library
from paceline.optim import _native, _report, _sharded
from paceline.optim._native import Group, Table, Tensor
from paceline.optim._unchanged import Gradients, Values, places

KIND = "cuda"  # the type of devices that this module serves
SKIP_NOT_FINITE = 1
_REFUSED, _PARTIAL = -8, -9

# Of an optimizer, which its plan does not hold: they would keep each other alive.
AddGroup = Callable[[Any, Table, dict[str, Any]], None]
_grad_of = operator.attrgetter("grad")


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
    """The exported functions, typed. Raises OSError or AttributeError where there are none."""

    def __init__(self) -> None:
        function = functools.partial(_library.typed, _library.opened())
        pointer, size, sizes = ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64)
        self.open = function("paceline_optim_device_open", ctypes.c_int32, ctypes.c_char_p, ctypes.c_char_p, size)
        self.table = function(
            "paceline_optim_device_table", pointer, ctypes.c_uint32, pointer, size, pointer, sizes, sizes
        )
        self.step = function("paceline_optim_device_step", ctypes.POINTER(Call))
        self.everywhere = function("paceline_optim_device_everywhere", ctypes.c_char_p, ctypes.c_char_p, size)
        self.counts_are = function("paceline_optim_counts_are", pointer, pointer, size)
        self.count = function("paceline_optim_count", pointer, pointer, pointer, size)


@functools.cache
def functions() -> Functions:
    return Functions()


def _why(ask: Callable[..., int], *arguments: Any) -> str:
    """What a function says that answers a reason; empty where it has none."""
    missing = _native.why_unavailable()
    if missing:
        return missing
    why = ctypes.create_string_buffer(512)
    try:
        status = ask(*arguments, _library.kernels_folder().encode(), why, len(why))
    except AttributeError as error:
        return str(error)
    return "" if status == 0 else why.value.decode(errors="replace") or f"code {status}"


@functools.cache
def why_unavailable(index: int) -> str:
    """Empty where this device's optimizers can run in the library; else the reason."""
    return _why(lambda *arguments: functions().open(*arguments), index)


@functools.cache
def why_not_everywhere() -> str:
    """Empty where every device that the driver has can; else why one cannot. No device is touched."""
    return _why(lambda *arguments: functions().everywhere(*arguments))


def index_of(device: torch.device) -> int:
    return 0 if device.index is None else device.index


def stream_of(device: torch.device) -> int:
    return torch.cuda.current_stream(device).cuda_stream


def is_capturing() -> bool:
    return torch.cuda.is_current_stream_capturing()


def why_not(optimizer: Any, group: dict[str, Any], parameter: Tensor, device: torch.device) -> str:
    """Empty where the library can update this parameter on this device; else why torch has to."""
    if parameter.device != device:
        return "parameters on several devices"
    if group.get("differentiable"):
        return "differentiable=True"
    if group.get("dampening"):
        # Whether a buffer holds something is known on the device alone, and torch's state has no place for it.
        return "dampening on a GPU"
    why = optimizer._why_not(parameter, parameter.grad, device.type)
    if why:
        return why
    return "" if _native.is_dense(_sharded.local(parameter.detach())) else "a parameter with gaps in its memory"


@dataclass
class Asked:
    """What a step is asked for beside the update. All but the limit are scalars of any device, or None."""

    max_grad_norm: float | None = None
    grad_scale: Tensor | None = None  # gradients are divided by it
    found_inf: Tensor | None = None  # not 0: nothing changes
    found_inf_out: Tensor | None = None  # on the device: 1 if a gradient is not finite, and nothing changes then


class Plan(Table):
    """The table of one optimizer on one device. It begins as a list of rows, as for the CPU; seal() brings it to the device."""

    def __init__(self, device: torch.device, add_group: AddGroup) -> None:
        super().__init__()
        self.device = device
        self.index = index_of(device)
        self.norm: Tensor | None = None  # of the last step with max_grad_norm: on the device
        self._add_group_of = add_group

    def begin(self, optimizer: Any, group: dict[str, Any]) -> None:
        """The group of all rows added from now on. All of an optimizer's, so that a group's number is its place."""
        self._add_group_of(optimizer, self, {**group, "lr": 0.0} if self._is_here(group["lr"]) else group)

    def _is_here(self, rate: Any) -> bool:
        return isinstance(rate, Tensor) and rate.device == self.device

    def seal(self, optimizer: Any) -> None:
        self._values = Values(optimizer.state)
        self._parameters = _ids(optimizer)
        self.sharded = any(map(_sharded.is_one, self.written))
        parts = self._parts(self.written)
        self._places = places(parts)
        # Of 16-bit parameters: what the program writes into one counts, and its master is made anew.
        self._halves = [parameter for parameter in self.written if parameter.dtype in _native.HALVES]
        self._versions = [parameter._version for parameter in self._halves]
        self._others = self._without_gradient(optimizer)
        self._gradients = Gradients(self._keep[::2], parts)
        self._keep = []
        # An empty gradient has no address, and is one all the same.
        self._empty = [index for index, part in enumerate(parts) if part.numel() == 0]
        image_bytes, table_bytes = ctypes.c_uint64(), ctypes.c_uint64()
        groups = (Group * len(self._groups))(*self._groups)
        rows = self._address()

        def fill(image: int) -> None:
            sizes = (ctypes.byref(image_bytes), ctypes.byref(table_bytes))
            _check(functions().table(groups, len(groups), rows, len(self), image, *sizes))

        fill(0)
        on_device = self.device.type == "cuda"
        # Kept as long as the table: the copy may be captured, and a graph reads it again at each replay.
        self._image = torch.empty(image_bytes.value, dtype=torch.uint8, device="cpu", pin_memory=on_device)
        fill(self._image.data_ptr())
        # With room for an aligned beginning, whoever allocates.
        self._table = torch.empty(table_bytes.value + 256, dtype=torch.uint8, device=self.device)
        begin = -self._table.data_ptr() % 256
        self._table[begin : begin + image_bytes.value].copy_(self._image, non_blocking=True)
        self._stream = stream_of(self.device)
        self._norm_out = torch.zeros((), dtype=torch.float64, device=self.device)
        self._pointers = array.array("Q", bytes(8 * len(self)))
        self._pack = struct.Struct(f"{len(self)}Q").pack_into
        self.call = Call(size=ctypes.sizeof(Call), device=self.index, group_count=len(groups))
        self.call.tensors, self.call.tensor_count = rows, len(self)
        self.call.table, self.call.table_bytes = self._table.data_ptr() + begin, table_bytes.value
        self.call.grads = self._pointers.buffer_info()[0]

    def _parts(self, tensors: list[Any]) -> list[Any]:
        """What is here of each, None staying None."""
        return [*map(_sharded.local, tensors)] if self.sharded else tensors

    def _without_gradient(self, optimizer: Any) -> list[Tensor]:
        """Parameters that are not in the table, since they had no gradient when it was made."""
        ours = {id(parameter) for parameter in self.written}
        return [p for group in optimizer.param_groups for p in group["params"] if id(p) not in ours]

    def fits(self, optimizer: Any) -> bool:
        """Whether every tensor is still the one that the table points to."""
        return (
            self._parameters == _ids(optimizer)
            and self._values.same(optimizer.state)
            and self._places == places(self._parts(self.written))
            and self._versions == [parameter._version for parameter in self._halves]
            and all(parameter.grad is None for parameter in self._others)
        )

    def gradients(self) -> list[Tensor | None] | None:
        """One for each row; None where one of them is no longer what the table was made for."""
        whole = [*map(_grad_of, self.written)]
        if self.sharded and any(
            grad is not None and _sharded.why_apart(p, grad) for p, grad in zip(self.written, whole)
        ):
            return None
        grads = self._parts(whole)
        return grads if self._gradients.same(grads) else self._gradients.laid_out(grads, self._parts(self.written))

    def step_with(self, optimizer: Any, grads: list[Tensor | None], asked: Asked) -> None:
        self.done = False
        call = self.call
        given = [grad for grad in grads if grad is not None]
        if len(given) == len(grads):
            self._pack(self._pointers, 0, *map(Tensor.data_ptr, given))
        else:
            self._pack(self._pointers, 0, *[0 if grad is None else grad.data_ptr() for grad in grads])
        for index in self._empty:
            self._pointers[index] = 0 if grads[index] is None else 1
        groups, rates = self._settings(optimizer)
        call.groups = ctypes.addressof(groups)
        call.group_lr = None if rates is None else rates.buffer_info()[0]
        call.stream = stream_of(self.device)
        if call.stream != self._stream and self.device.type == "cuda":
            # Should the table be freed, then not before this stream's steps are done.
            self._table.record_stream(torch.cuda.current_stream(self.device))
            self._norm_out.record_stream(torch.cuda.current_stream(self.device))
        kept = [self._scalar(asked.grad_scale), self._scalar(asked.found_inf)]
        call.grad_scale, call.found_inf = (None if one is None else one.data_ptr() for one in kept)
        out = asked.found_inf_out
        call.flags, call.found_inf_out = (0, None) if out is None else (SKIP_NOT_FINITE, out.data_ptr())
        limit = asked.max_grad_norm
        call.max_grad_norm = limit or 0.0
        call.norm_out = None if limit is None else self._norm_out.data_ptr()
        status = functions().step(ctypes.byref(call))
        self.done = status in (0, _PARTIAL)
        _check(status)
        self.norm = None if limit is None else self._norm_out
        if len(given) == len(grads):
            _native.mark_written(self.written)
        else:
            _native.mark_written([parameter for parameter, grad in zip(self.written, grads) if grad is not None])
        self._versions = [parameter._version for parameter in self._halves]

    def _scalar(self, value: Tensor | None) -> Tensor | None:
        return None if value is None else value.to(device=self.device, dtype=torch.float32)

    def _settings(self, optimizer: Any) -> tuple[Any, array.array[int] | None]:
        """Groups as they are now; and where their learning rates are on the device, if one is."""
        table = Table()
        rates = array.array("Q")
        self._rates = []
        for group in optimizer.param_groups:
            on_device = self._is_here(group["lr"])
            if on_device:
                self._rates.append(group["lr"].to(torch.float32))
                group = {**group, "lr": 0.0}
            rates.append(self._rates[-1].data_ptr() if on_device else 0)
            self._add_group_of(optimizer, table, group)
        return (Group * len(table._groups))(*table._groups), rates if self._rates else None


def _ids(optimizer: Any) -> list[list[int]]:
    """Of each group's parameters. A plan keeps all of its own alive, so that none of these is another's later."""
    return [[*map(id, group["params"])] for group in optimizer.param_groups]


def _check(status: int) -> None:
    if status in (_REFUSED, _PARTIAL):
        updated = "some" if status == _PARTIAL else "no"
        raise RuntimeError(
            f"paceline.optim: the driver refused to launch an optimizer's kernel; {updated} tensors were updated"
        )
    _native.check(status)


def fill(plan: Plan, optimizer: Any, add: Callable[[Table, dict[str, Any], Tensor], None]) -> Plan:
    """With all parameters that have a gradient now, and brings it to the device."""
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
    given = [(group, p) for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    why = why or next(filter(None, (why_not(optimizer, group, p, device) for group, p in given)), "")
    if why:
        outcome.device = f"not on the GPU ({why})"
        return None
    if is_capturing():
        raise RuntimeError(
            "paceline.optim: the first step, and one after parameters, state or gradients' types have changed, cannot be captured: "
            "make one step before the capture"
        )
    outcome.device = ""
    return fill(Plan(device, type(optimizer)._add_group), optimizer, optimizer._add)


def _over_ranks(asked: Asked, grads: list[Any]) -> tuple[Asked, Tensor | None]:
    """What the kernels are asked for where each rank has a part of the gradients: their norm is of all ranks, so PyTorch makes it, and
    clipping is part of what gradients are divided by. Answers the norm too, if there is to be one; nothing waits."""
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
    return Asked(None, divisor / (asked.max_grad_norm / (norm + 1e-6)).clamp(max=1.0), found_inf), norm


def step(optimizer: Any) -> bool:
    """Whether the step was made here: all parameters with a gradient are on one GPU, and the library's to update."""
    first = next((p for group in optimizer.param_groups for p in group["params"] if p.grad is not None), None)
    if first is None or first.device.type != KIND:
        return False
    plan = optimizer._plan
    grads = plan.gradients() if plan is not None and plan.fits(optimizer) else None
    if grads is None:
        plan = optimizer._plan = _make(optimizer, first.device)
        if plan is None:
            return False
        grads = plan.gradients()
        assert grads is not None
    told = (getattr(optimizer, name, None) for name in ("grad_scale", "found_inf"))
    asked = Asked(optimizer.max_grad_norm, *map(_sharded.whole, told), optimizer.found_inf_out)
    norm = None
    if plan.sharded:
        asked, norm = _over_ranks(asked, [p.grad for p in plan.written if p.grad is not None])
    plan.step_with(optimizer, grads, asked)
    if optimizer.max_grad_norm is not None:
        optimizer.grad_norm = plan.norm if norm is None else norm
    outcome = _report.outcome_of(optimizer)
    outcome.fused, outcome.elsewhere, outcome.where = len(plan), {}, "the GPU"
    return True
