# SPDX-License-Identifier: Apache-2.0
"""`pin_memory=True` without PyTorch's thread: batches that have arrived are copied out of their
slots into PyTorch's own pinned memory by a thread of the library (paceline/copier.h), which needs
no interpreter lock, while the training computes.

What is pinned, and what containers become, is decided by PyTorch's own function: it is run over the
batch, and only the copies of tensors that lie in the slot are made elsewhere, later. The memory is
PyTorch's, so its allocator knows, as ever, which streams read it, whoever copies from it and
however.

One batch is begun or waited for at a time. What fails in PyTorch's thread fails with the same
words, when the batch is asked for.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import sys
import weakref
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.overrides import TorchFunctionMode
from torch.utils.data._utils import pin_memory as torch_pin

from paceline._core import library

NOT_YET = 1
_LONG_MS = 1000


@functools.cache
def _functions() -> Any:
    waiting = functools.partial(library.typed, library.opened())
    quick = functools.partial(library.typed, library.opened(ctypes.PyDLL))

    class Functions:
        handle, number = ctypes.c_void_p, ctypes.c_uint64
        create = waiting("paceline_copier_create", ctypes.POINTER(handle))
        destroy = waiting("paceline_copier_destroy", handle, result=None)
        begin = quick(
            "paceline_copier_begin", handle, handle, handle, number, ctypes.POINTER(number)
        )
        wait = waiting("paceline_copier_wait", handle, number, ctypes.c_int32)

    return Functions


def accelerator() -> str:
    """Which kind of device PyTorch pins memory for; empty where there is none."""
    accelerators = getattr(torch, "accelerator", None)
    if accelerators is None:
        return "cuda" if torch.cuda.is_available() else ""
    if not accelerators.is_available():
        return ""
    return str(accelerators.current_accelerator().type)


def wanted(loader: Any) -> bool:
    """Whether PyTorch would pin this loader's batches."""
    return bool(loader.pin_memory and accelerator())


def why_not(loader: Any) -> str:
    """Empty where this loader's batches may be pinned here, or need not be; else why PyTorch does
    it.
    """
    if not wanted(loader):
        return ""
    if loader.pin_memory_device:
        return f"pin_memory_device={loader.pin_memory_device!r}"
    if accelerator() != "cuda":
        return f"pin_memory with an accelerator of kind {accelerator()}"
    return library.why_unavailable(_functions)


class Landing:
    """A batch in flight. Its slot and its target memory are kept until it has arrived."""

    def __init__(self, pinning: Pinning, value: Any, memory: Any, copy: int) -> None:
        self._pinning, self._value, self._memory, self._copy = pinning, value, memory, copy

    def look(self, number: int) -> Any:
        """The batch of this number, if it is that and has arrived; it stays here."""
        if self._value[0] != number or not self._pinning.done(self._copy):
            return None
        return self._value[1]

    def arrived(self) -> Any:
        self._pinning.wait(self._copy)
        value, self._value, self._memory = self._value, None, None
        return value

    def __del__(self) -> None:
        self._pinning.wait(self._copy)


class Pinning:
    """Of one loader's iterator. Raises OSError where no thread can be had."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._handle: ctypes.c_void_p | None = ctypes.c_void_p()
        self._last = ctypes.c_uint64()
        code = _functions().create(ctypes.byref(self._handle))
        if code != 0:
            raise OSError(f"no thread that copies batches (code {code})")
        _all.add(self)

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle and not sys.is_finalizing():
            _functions().destroy(handle)

    def begin(self, value: tuple[Any, Any], slot: Any) -> Landing:
        """`value` is what a worker sent: number and batch; its tensors may lie in `slot`, a ctypes
        array or None.
        """
        number, batch = value
        targets: list[torch.Tensor] = []  # also of a batch that fails in the middle
        if not isinstance(batch, ExceptionWrapper):
            try:
                with _Copies(self, slot, targets, not _plain(batch)):
                    batch = torch_pin.pin_memory(batch)
            except Exception:
                batch = ExceptionWrapper(
                    where=f"in pin memory thread for device {torch.cuda.current_device()}"
                )
        return Landing(self, (number, batch), (slot, targets), self._last.value)

    def copy(self, source: torch.Tensor) -> torch.Tensor:
        """A pinned tensor that will have the same bytes. Dense tensors only."""
        target = torch.empty_strided(
            source.shape, source.stride(), dtype=source.dtype, device="cpu", pin_memory=True
        )
        size = source.numel() * source.element_size()
        code = _functions().begin(
            self._handle, target.data_ptr(), source.data_ptr(), size, ctypes.byref(self._last)
        )
        if code != 0:
            raise RuntimeError(f"paceline.loader: a batch cannot be copied (code {code})")
        return target

    def done(self, copy: int) -> bool:
        return bool(_functions().wait(self._handle, copy, 0) == 0)

    def wait(self, copy: int | None = None) -> None:
        """For this copy and all before it; for all without one."""
        copy = self._last.value if copy is None else copy
        # A copier that has ended has made all its copies; a forked child has none, and its memory
        # is its own affair.
        while self._handle and os.getpid() == self._owner:
            code = _functions().wait(self._handle, copy, _LONG_MS)
            if code == 0:
                return
            if code != NOT_YET:
                raise RuntimeError(f"paceline.loader: a batch was not copied (code {code})")


class _Copies(TorchFunctionMode):
    """In its thread, tensors of the slot are pinned by the copier; `at_once`: and are there when
    they are handed out.
    """

    def __init__(
        self, pinning: Pinning, slot: Any, targets: list[torch.Tensor], at_once: bool
    ) -> None:
        super().__init__()
        self._pinning, self._targets, self._at_once = pinning, targets, at_once
        self._begin = ctypes.addressof(slot) if slot is not None else 0
        self._end = self._begin + (ctypes.sizeof(slot) if slot is not None else 0)

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.Tensor.pin_memory and self._is_ours(args[0]):
            pinned = self._pinning.copy(args[0])
            self._targets.append(pinned)
            if self._at_once:
                self._pinning.wait()
            return pinned
        return function(*args, **(kwargs or {}))

    def _is_ours(self, tensor: Any) -> bool:
        return (
            type(tensor) is torch.Tensor
            and self._begin <= tensor.data_ptr() < self._end
            and dense(tensor)
        )


def _plain(batch: Any) -> bool:
    """Whether no code of the program's runs while it is pinned, which could look at what has not
    arrived yet.
    """
    kind = type(batch)
    if kind in (list, tuple):
        return all(map(_plain, batch))
    if kind is dict:
        return all(map(_plain, batch.values()))
    return kind in (torch.Tensor, str, bytes, int, float, bool, type(None))


def dense(tensor: torch.Tensor) -> bool:
    """Whether its bytes are one piece."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.is_contiguous() or (
        tensor.dim() in formats and tensor.is_contiguous(memory_format=formats[tensor.dim()])
    )


_all: weakref.WeakSet[Pinning] = weakref.WeakSet()


@atexit.register
def _finish() -> None:
    """Before the device's own library gives the memory back."""
    for pinning in list(_all):
        pinning.wait()
