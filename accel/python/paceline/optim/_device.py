# SPDX-License-Identifier: Apache-2.0
"""The optimizers of libpaceline.so on GPUs (paceline/optim_device.h): a `Plan` is made once of an optimizer's parameters and state, and
serves every step until one of them is another tensor. A step reads the addresses of gradients and launches on the current stream;
nothing waits, and nothing is copied between host and device."""

from __future__ import annotations

import array
import ctypes
import functools
import itertools
import operator
from typing import Any

import torch

from paceline import _library
from paceline.optim import _native, _report
from paceline.optim._native import Group, Table, Tensor

KIND = "cuda"  # the type of devices that this module serves
SKIP_NOT_FINITE = 1

# Called by map() over all tensors: most of what a step costs the host is asking each of them.
_grad_of, _dtype_of = operator.attrgetter("grad"), operator.attrgetter("dtype")


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


@functools.cache
def functions() -> Functions:
    return Functions()


@functools.cache
def why_unavailable(index: int) -> str:
    """Empty where this device's optimizers can run in the library; else the reason."""
    missing = _native.why_unavailable()
    if missing:
        return missing
    why = ctypes.create_string_buffer(512)
    try:
        status = functions().open(index, _library.kernels_folder().encode(), why, len(why))
    except AttributeError as error:
        return str(error)
    return "" if status == 0 else why.value.decode(errors="replace") or f"code {status}"


def index_of(device: torch.device) -> int:
    return 0 if device.index is None else device.index


def stream_of(device: torch.device) -> int:
    return torch.cuda.current_stream(device).cuda_stream


def is_capturing() -> bool:
    return torch.cuda.is_current_stream_capturing()


def why_not(group: dict[str, Any], parameter: Tensor, device: torch.device) -> str:
    """Empty where the library can update this parameter on this device; else why torch has to."""
    if parameter.device != device:
        return "parameters on several devices"
    if group.get("differentiable"):
        return "differentiable=True"
    if group.get("dampening"):
        # Whether a buffer holds something is known on the device alone, and torch's state has no place for it.
        return "dampening on a GPU"
    why = _native.why_not(parameter, parameter.grad, device.type)
    if why:
        return why
    return "" if _native.is_dense(parameter) else "a parameter with gaps in its memory"


class Plan(Table):
    """The table of one optimizer on one device. It begins as a list of rows, as for the CPU; seal() brings it to the device."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.index = index_of(device)

    def seal(self, optimizer: Any) -> None:
        self._state = optimizer.state
        self._sizes = [len(group["params"]) for group in optimizer.param_groups]
        self._states = [optimizer.state[parameter] for parameter in self.written]
        self._values = self._identities()
        self._places = [parameter.data_ptr() for parameter in self.written]
        # Of 16-bit parameters: what the program writes into one counts, and its master is made anew.
        self._halves = [parameter for parameter in self.written if parameter.dtype in _native.HALVES]
        self._versions = [parameter._version for parameter in self._halves]
        self._others = self._without_gradient(optimizer)
        self._dtypes = [self._keep[i].dtype for i in range(0, len(self._keep), 2)]
        self._keep = []
        self._whole = all(parameter.is_contiguous() for parameter in self.written)
        # An empty gradient has no address, and is one all the same.
        self._empty = [index for index, parameter in enumerate(self.written) if parameter.numel() == 0]
        image_bytes, table_bytes = ctypes.c_uint64(), ctypes.c_uint64()
        groups = (Group * len(self._groups))(*self._groups)
        rows = self._address()

        def fill(image: int) -> None:
            sizes = (ctypes.byref(image_bytes), ctypes.byref(table_bytes))
            _check(functions().table(groups, len(groups), rows, len(self), image, *sizes))

        fill(0)
        on_device = self.device.type == "cuda"
        # Kept as long as the table: the copy may be captured, and a graph reads it again at each replay.
        self._image = torch.empty(image_bytes.value, dtype=torch.uint8, pin_memory=on_device)
        fill(self._image.data_ptr())
        # With room for an aligned beginning, whoever allocates.
        self._table = torch.empty(table_bytes.value + 256, dtype=torch.uint8, device=self.device)
        begin = -self._table.data_ptr() % 256
        self._table[begin : begin + image_bytes.value].copy_(self._image, non_blocking=True)
        self._stream = stream_of(self.device)
        self.norm_out = torch.zeros((), dtype=torch.float64, device=self.device)
        self.call = Call(size=ctypes.sizeof(Call), device=self.index, group_count=len(groups))
        self.call.tensors, self.call.tensor_count = rows, len(self)
        self.call.table, self.call.table_bytes = self._table.data_ptr() + begin, table_bytes.value

    def _identities(self) -> list[int]:
        return [*map(id, itertools.chain.from_iterable(map(dict.values, self._states)))]

    def _without_gradient(self, optimizer: Any) -> list[Tensor]:
        """Parameters that are not in the table, since they had no gradient when it was made."""
        ours = {id(parameter) for parameter in self.written}
        return [p for group in optimizer.param_groups for p in group["params"] if id(p) not in ours]

    def fits(self, optimizer: Any) -> bool:
        """Whether every tensor is still the one that the table points to."""
        return (
            self._state is optimizer.state
            and self._sizes == [len(group["params"]) for group in optimizer.param_groups]
            and self._values == self._identities()
            and self._places == [*map(Tensor.data_ptr, self.written)]
            and self._versions == [parameter._version for parameter in self._halves]
            and all(parameter.grad is None for parameter in self._others)
        )

    def _are_plain(self, grads: list[Any]) -> bool:
        """Whether all are there and lie as their parameters do."""
        try:
            return (
                self._whole
                and set(map(type, grads)) == {Tensor}
                and [*map(_dtype_of, grads)] == self._dtypes
                and all(map(Tensor.is_contiguous, grads))
                and not any(map(Tensor.is_neg, grads))
            )
        except RuntimeError:  # a sparse one has no such thing
            return False

    def gradients(self) -> list[Tensor | None] | None:
        """One for each row; None where one of them is no longer what the table was made for."""
        grads = [*map(_grad_of, self.written)]
        if self._are_plain(grads):
            return grads
        found: list[Tensor | None] = []
        for parameter, grad, dtype in zip(self.written, grads, self._dtypes):
            if grad is not None:
                if type(grad) is not Tensor or grad.dtype is not dtype or grad.layout is not torch.strided:
                    return None
                if not (grad.is_contiguous() and parameter.is_contiguous()) or grad.is_neg():
                    grad = _native.laid_out_as(parameter.detach(), grad)
            found.append(grad)
        return found

    def step_with(self, optimizer: Any, grads: list[Tensor | None]) -> None:
        call = self.call
        given = [grad for grad in grads if grad is not None]
        if len(given) == len(grads):
            places = array.array("Q", map(Tensor.data_ptr, given))
        else:
            places = array.array("Q", [0 if grad is None else grad.data_ptr() for grad in grads])
        for index in self._empty:
            places[index] = 0 if grads[index] is None else 1
        groups, rates = self._settings(optimizer)
        call.groups = ctypes.addressof(groups)
        call.group_lr = None if rates is None else rates.buffer_info()[0]
        call.grads = places.buffer_info()[0]
        call.stream = stream_of(self.device)
        if call.stream != self._stream and self.device.type == "cuda":
            # Should the table be freed, then not before this stream's steps are done.
            self._table.record_stream(torch.cuda.current_stream(self.device))
            self.norm_out.record_stream(torch.cuda.current_stream(self.device))
        kept = [self._scalar(optimizer, "grad_scale"), self._scalar(optimizer, "found_inf")]
        call.grad_scale, call.found_inf = (None if one is None else one.data_ptr() for one in kept)
        out = optimizer.found_inf_out
        call.flags, call.found_inf_out = (0, None) if out is None else (SKIP_NOT_FINITE, out.data_ptr())
        limit = optimizer.max_grad_norm
        call.max_grad_norm = limit or 0.0
        call.norm_out = None if limit is None else self.norm_out.data_ptr()
        _check(functions().step(ctypes.byref(call)))
        if limit is not None:
            optimizer.grad_norm = self.norm_out
        if len(given) == len(grads):
            _native.mark_written(self.written)
        else:
            _native.mark_written([parameter for parameter, grad in zip(self.written, grads) if grad is not None])
        self._versions = [parameter._version for parameter in self._halves]

    def _scalar(self, optimizer: Any, name: str) -> Tensor | None:
        value = getattr(optimizer, name, None)
        return None if value is None else value.to(device=self.device, dtype=torch.float32)

    def _settings(self, optimizer: Any) -> tuple[Any, array.array[int] | None]:
        """Groups as they are now; and where their learning rates are on the device, if one is."""
        table = Table()
        rates = array.array("Q")
        self._rates = []
        for group in optimizer.param_groups:
            lr, on_device = group["lr"], isinstance(group["lr"], Tensor) and group["lr"].device == self.device
            if on_device:
                self._rates.append(lr.to(torch.float32))
                group = {**group, "lr": 0.0}
            rates.append(self._rates[-1].data_ptr() if on_device else 0)
            optimizer._add_group(table, group)
        return (Group * len(table._groups))(*table._groups), rates if self._rates else None


def _check(status: int) -> None:
    if status == -8:
        raise RuntimeError(
            "paceline.optim: the driver refused to launch an optimizer's kernel; the device's state is lost"
        )
    _native.check(status)


def _make(optimizer: Any, device: torch.device) -> Plan | None:
    outcome = _report.outcome_of(optimizer)
    why = why_unavailable(index_of(device))
    given = [(group, p) for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    why = why or next(filter(None, (why_not(group, p, device) for group, p in given)), "")
    if why:
        outcome.device = f"not on the GPU ({why})"
        return None
    if is_capturing():
        raise RuntimeError(
            "paceline.optim: the first step, and one after parameters, state or gradients' types have changed, cannot be captured: "
            "make one step before the capture"
        )
    plan = Plan(device)
    given_of = {id(p) for _, p in given}
    for group in optimizer.param_groups:
        # All of them, so that a group's number is its place.
        on_device = isinstance(group["lr"], Tensor) and group["lr"].device == device
        optimizer._add_group(plan, {**group, "lr": 0.0} if on_device else group)
        for parameter in group["params"]:
            if id(parameter) in given_of:
                optimizer._add(plan, group, parameter)
    plan.seal(optimizer)
    outcome.device = ""
    return plan


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
    plan.step_with(optimizer, grads)
    outcome = _report.outcome_of(optimizer)
    outcome.fused, outcome.elsewhere, outcome.where = len(plan), {}, "the GPU"
    return True
