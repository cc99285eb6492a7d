# SPDX-License-Identifier: Apache-2.0
"""`pin_memory=True` without PyTorch's thread.

A thread of the library (paceline/copier.h) copies arrived batches out of their slots into PyTorch's
own pinned memory. It needs no interpreter lock, so it works while the training computes.

PyTorch's own function runs over the batch and decides what is pinned and what containers become.
Only the copies of tensors in the slot are made later, by the library's thread. The memory belongs
to PyTorch's allocator, so the allocator knows which streams read it.

One batch is begun or waited for at a time. An error that PyTorch's thread would raise is raised
with the same text, when the program asks for the batch.
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
    """Returns the device type that PyTorch pins memory for, or an empty text without a device."""
    accelerators = getattr(torch, "accelerator", None)
    if accelerators is None:
        return "cuda" if torch.cuda.is_available() else ""
    if not accelerators.is_available():
        return ""
    return str(accelerators.current_accelerator().type)


def wanted(loader: Any) -> bool:
    """Returns whether PyTorch would pin this loader's batches."""
    return bool(loader.pin_memory and accelerator())


def why_not(loader: Any) -> str:
    """Returns an empty text if this loader's batches can be pinned here or need not be pinned, else
    why PyTorch must pin them.
    """
    if not wanted(loader):
        return ""
    if loader.pin_memory_device:
        return f"pin_memory_device={loader.pin_memory_device!r}"
    if accelerator() != "cuda":
        return f"pin_memory with an accelerator of kind {accelerator()}"
    return library.why_unavailable(_functions)


class Landing:
    """A batch that is being copied. It keeps the slot and the target memory until the copy ends."""

    def __init__(self, pinning: Pinning, value: Any, memory: Any, copy: int) -> None:
        self._pinning, self._value, self._memory, self._copy = pinning, value, memory, copy

    def look(self, number: int) -> Any:
        """Returns the batch without taking it, if it has this number and has arrived; else None."""
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
    """The copying thread of one iterator. Raises OSError if the system refuses a thread."""

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
        """Starts to pin a batch. `value` is a worker's message: the number and the batch. Tensors
        of the batch may lie in `slot`, which is a ctypes array or None.
        """
        number, batch = value
        targets: list[torch.Tensor] = []  # kept even if the batch fails halfway
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
        """Returns a pinned tensor that will get the same bytes. The source must be dense."""
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
        """Waits for this copy and all earlier ones; without an argument, for all copies."""
        copy = self._last.value if copy is None else copy
        # A destroyed copier has finished all its copies. A forked child has no copying thread, so
        # it does not wait.
        while self._handle and os.getpid() == self._owner:
            code = _functions().wait(self._handle, copy, _LONG_MS)
            if code == 0:
                return
            if code != NOT_YET:
                raise RuntimeError(f"paceline.loader: a batch was not copied (code {code})")


class _Copies(TorchFunctionMode):
    """While this mode is active in a thread, the copier pins the tensors of the slot. With
    `at_once`, each tensor is complete before it is returned.
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
    """Returns whether pinning this batch runs no code of the program. Such code could read tensors
    that are not copied yet.
    """
    kind = type(batch)
    if kind in (list, tuple):
        return all(map(_plain, batch))
    if kind is dict:
        return all(map(_plain, batch.values()))
    return kind in (torch.Tensor, str, bytes, int, float, bool, type(None))


def dense(tensor: torch.Tensor) -> bool:
    """Returns whether the tensor's bytes lie together without gaps."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.is_contiguous() or (
        tensor.dim() in formats and tensor.is_contiguous(memory_format=formats[tensor.dim()])
    )


_all: weakref.WeakSet[Pinning] = weakref.WeakSet()


@atexit.register
def _finish() -> None:
    """Ends all copies before the device's library frees the pinned memory."""
    for pinning in list(_all):
        pinning.wait()
