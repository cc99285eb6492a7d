# SPDX-License-Identifier: Apache-2.0
"""The optimizers of libpaceline.so (paceline/optim.h) for lists of torch tensors: a `Table` is
filled row by row, then handed over in one call that gives up the interpreter lock.
"""

from __future__ import annotations

import array
import ctypes
import functools
import math
from typing import Any

import torch

from paceline._core import library
from paceline._core.tensors import mark_written
from paceline.optim import _sharded

Tensor = torch.Tensor

ADAM, SGD, LAMB, LARS = 1, 2, 3, 4
DECOUPLED, AMSGRAD, MAXIMIZE, NESTEROV, ADAPT = 1, 2, 4, 8, 16
FIRST, STATE_AS_PARAM = 1, 2  # of a row
DTYPES = {torch.float32: 1, torch.bfloat16: 2, torch.float16: 3}
HALVES = (torch.bfloat16, torch.float16)
ROW_WORDS, GRAD_WORD, KINDS_WORD = 9, 1, 8  # of a struct paceline_optim_tensor


class Group(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("lr", ctypes.c_double),
        ("beta1", ctypes.c_double),
        ("beta2", ctypes.c_double),
        ("eps", ctypes.c_double),
        ("weight_decay", ctypes.c_double),
        ("momentum", ctypes.c_double),
        ("dampening", ctypes.c_double),
        ("trust_coefficient", ctypes.c_double),
        ("grad_multiplier", ctypes.c_double),
    ]


class Functions:
    """The exported functions, typed. Raises OSError or AttributeError if the library has none."""

    def __init__(self) -> None:
        function = functools.partial(library.typed, library.opened())
        number, count, pointer = ctypes.c_int32, ctypes.c_uint64, ctypes.c_void_p
        self.step = function(
            "paceline_optim_step", ctypes.POINTER(Group), ctypes.c_uint32, pointer, count, number
        )
        self.norm = function(
            "paceline_optim_norm", pointer, count, number, ctypes.POINTER(ctypes.c_double)
        )
        self.simd: str = function("paceline_optim_simd", result=ctypes.c_char_p)().decode()


@functools.cache
def functions() -> Functions:
    return Functions()


@functools.cache
def why_unavailable() -> str:
    """Returns why the library cannot be used, or an empty text. Asked once: a library that appears
    later would make some steps of a job differ from others.
    """
    return library.why_unavailable(functions)


def why_not(parameter: Tensor, grad: Tensor, device_type: str = "cpu") -> str:
    """Returns why PyTorch has to update this tensor. Empty if the library can update it, or this
    rank's part of it, on a device of this type.
    """
    if _sharded.is_one(parameter):
        why = _sharded.why_apart(parameter, grad)
        return why or why_not(
            _sharded.local(parameter.detach()), _sharded.local(grad.detach()), device_type
        )
    kind = type(parameter)
    if kind is not torch.nn.Parameter and kind is not Tensor:
        return f"a parameter of type {kind.__name__}"
    if parameter.device.type != device_type:
        return f"parameters on {parameter.device.type}"
    if parameter.dtype not in DTYPES or grad.dtype not in DTYPES:
        return f"{str(grad.dtype)[6:]} gradients of {str(parameter.dtype)[6:]} parameters"
    if type(grad) is not Tensor and type(grad) is not torch.nn.Parameter:
        return f"a gradient of type {type(grad).__name__}"
    if (
        parameter.layout is not torch.strided
        or grad.layout is not torch.strided
        or grad.device != parameter.device
    ):
        return f"a gradient of layout {grad.layout} on {grad.device}"
    if has_no_memory(grad):
        return "a gradient that has no memory"
    if parameter.is_neg():
        return "a parameter that PyTorch negates lazily"
    if parameter.shape != grad.shape:
        return (
            f"a gradient of sizes {tuple(grad.shape)} of a parameter of sizes"
            f" {tuple(parameter.shape)}"
        )
    return ""


def has_no_memory(tensor: Tensor) -> bool:
    """Whether a tensor with elements has no memory, as zeros that PyTorch has not made yet."""
    return tensor.data_ptr() == 0 and tensor.numel() > 0


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill one stretch of memory, in whatever order of dimensions."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def alike(base: Tensor, other: Tensor) -> bool:
    """Whether element i lies as far from the start of one tensor as from that of the other."""
    if base.shape != other.shape:
        return False
    return base.stride() == other.stride() or (base.is_contiguous() and other.is_contiguous())


def laid_out_as(base: Tensor, other: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Returns `other` if it lies in memory as the dense `base` does, else a copy that does."""
    wanted = dtype or other.dtype
    if other.dtype is wanted and alike(base, other) and not other.is_neg():
        return other
    return torch.empty_like(base, dtype=wanted, requires_grad=False).copy_(other)


class Table:
    """The tensors that one call updates. Keeps alive what it points to, and is used once."""

    def __init__(self) -> None:
        self._words: list[int] = []
        self._rows: Any = None
        self._groups: list[Group] = []
        self._keep: list[Tensor] = []
        self._write_back: list[tuple[Tensor, Tensor]] = []
        self.written: list[Tensor] = []
        self.done = False  # something was updated

    def __len__(self) -> int:
        return len(self.written)

    def add_group(self, kind: int, flags: int, **values: float) -> None:
        """Sets the group of all rows that are added from now on."""
        self._groups.append(
            Group(size=ctypes.sizeof(Group), kind=kind, flags=flags, grad_multiplier=1.0, **values)
        )

    def base_of(self, parameter: Tensor) -> Tensor:
        """Returns the parameter, or a dense copy that is written back after the step."""
        base = own = _sharded.local(parameter.detach())
        if not is_dense(base):
            base = torch.empty_like(base).copy_(base)
            self._write_back.append((own, base))
        return base

    def add(
        self,
        parameter: Tensor,
        base: Tensor,
        grad: Tensor,
        states: tuple[Tensor | None, Tensor | None, Tensor | None],
        master: Tensor | None = None,
        step: Tensor | None = None,
        flags: int = 0,
    ) -> None:
        """`states`, `master` and `step` are float32 and laid out as `base`; the gradient may not
        be.
        """
        grad = laid_out_as(base, _sharded.local(grad))
        self._keep.append(grad)
        self._keep.append(base)
        self.written.append(parameter)
        first, second, third = states
        kinds = (
            DTYPES[base.dtype]
            | DTYPES[grad.dtype] << 8
            | flags << 16
            | (len(self._groups) - 1) << 32
        )
        self._words += (
            base.data_ptr(),
            grad.data_ptr(),
            0 if first is None else first.data_ptr(),
            0 if second is None else second.data_ptr(),
            0 if third is None else third.data_ptr(),
            0 if master is None else master.data_ptr(),
            0 if step is None else step.data_ptr(),
            base.numel(),
            kinds,
        )

    def is_first(self) -> bool:
        """Whether a row is of a first step."""
        return any(kinds >> 16 & FIRST for kinds in self._words[KINDS_WORD::ROW_WORDS])

    def _address(self) -> int:
        if self._rows is None:
            self._rows = array.array("Q", self._words)
        return self._rows.buffer_info()[0]

    def norm(self) -> float:
        """Returns the L2 norm of all gradients. It is not finite exactly if a gradient is not."""
        result = ctypes.c_double()
        status = functions().norm(
            self._address(), len(self), torch.get_num_threads(), ctypes.byref(result)
        )
        check(status)
        return result.value

    def step(self, grad_multiplier: float = 1.0) -> None:
        groups = (Group * len(self._groups))(*self._groups)
        for group in groups:
            group.grad_multiplier = grad_multiplier
        check(
            functions().step(
                groups, len(groups), self._address(), len(self), torch.get_num_threads()
            )
        )
        self.done = True
        for own, base in self._write_back:
            own.copy_(base)
        mark_written(self.written)


def check(status: int) -> None:
    if status == -4:
        raise MemoryError("paceline.optim: no memory for the list of tensors")
    if status != 0:
        raise RuntimeError(
            f"paceline.optim: the library refused its arguments (code {status}); nothing was"
            " updated"
        )


def clip_factor(norm: float, limit: float) -> float:
    """Returns the factor that torch.nn.utils.clip_grad_norm_ computes."""
    factor = limit / (norm + 1e-6)
    return factor if math.isnan(factor) else min(1.0, factor)
