# SPDX-License-Identifier: Apache-2.0
"""The loader's shared memory (paceline/loader.h) for Python: slabs and messages. Calls that wait
release the interpreter lock; calls that take nanoseconds keep it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from multiprocessing import reduction
from typing import Any

from paceline._core import library

NOTHING, INTERRUPTED = 1, 2
NO_SLOT = 64
MAX_SLOTS = 64
MAX_WORKERS = 1024


class Functions:
    """The exported functions, typed. Raises OSError or AttributeError if the library lacks them."""

    def __init__(self) -> None:
        waiting = functools.partial(library.typed, library.opened())
        quick = functools.partial(library.typed, library.opened(ctypes.PyDLL))
        handle, number, size = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
        data, length = ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint64)
        collect = (handle, ctypes.c_int32, ctypes.POINTER(number), data, length)
        hear = (handle, number, ctypes.c_int32, data, length)
        made = (number, number, size, ctypes.POINTER(handle))
        file = ctypes.c_int32
        made_with_file = (*made[:3], ctypes.POINTER(file), made[3])
        self.create = waiting("paceline_loader_create", *made)
        self.create_with_file = waiting("paceline_loader_create_with_file", *made_with_file)
        self.attach = waiting("paceline_loader_attach", file, *made)
        self.destroy = waiting("paceline_loader_destroy", handle, result=None)
        self.word = quick("paceline_loader_word", handle, result=ctypes.POINTER(number))
        self.slot = quick("paceline_loader_slot", handle, number, number, result=ctypes.c_void_p)
        self.claim = quick("paceline_loader_claim", handle, number, size, result=number)
        self.release = quick("paceline_loader_release", handle, number, number)
        self.tell = quick("paceline_loader_tell", handle, number, ctypes.c_char_p, size)
        self.hear = waiting("paceline_loader_hear", *hear)
        self.answer = waiting(
            "paceline_loader_answer",
            handle,
            number,
            ctypes.c_char_p,
            size,
            ctypes.c_int32,
            ctypes.POINTER(size),
        )
        self.collect = waiting("paceline_loader_collect", *collect)
        self.collect_now = quick("paceline_loader_collect", *collect)
        self.digest = waiting("paceline_loader_digest", handle, size, size, result=size)


@functools.cache
def functions() -> Functions:
    return Functions()


@functools.cache
def why_unavailable() -> str:
    """Returns an empty text if the library can be used, else why not."""
    return library.why_unavailable(functions)


# Garbage collection finalizes the objects of a cycle in any order. This set keeps a region until
# its iterator has ended.
_in_use: set[Region] = set()


class Region:
    """The memory of one loader. It is made here, and forked workers inherit it. Other workers get
    its file with what multiprocessing pickles for them. Any of these processes may release slots.
    In each process the mapping ends with the last reference to this object, but not before
    `retire`.
    """

    def __init__(
        self,
        workers: int,
        slots: int,
        slot_bytes: int,
        forked: bool = True,
        file: int | None = None,
    ) -> None:
        """`forked`: whether all workers will be. `file`: that of another process's region, to be
        shared."""
        self.workers, self.slots, self.slot_bytes = workers, slots, slot_bytes
        self.owner = os.getpid()
        self._functions = functions()
        self._handle = ctypes.c_void_p()
        self._file = ctypes.c_int32(-1)
        handle = ctypes.byref(self._handle)
        if file is not None:
            code = self._functions.attach(file, workers, slots, slot_bytes, handle)
        elif forked:
            code = self._functions.create(workers, slots, slot_bytes, handle)
        else:
            kept = ctypes.byref(self._file)
            code = self._functions.create_with_file(workers, slots, slot_bytes, kept, handle)
        if code != 0:
            raise OSError(
                f"no shared memory for {workers} workers of {slots} slots of {slot_bytes} bytes"
                f" (code {code})"
            )
        _in_use.add(self)
        self._worker = ctypes.c_uint32()
        self._data = ctypes.c_void_p()
        self._size = ctypes.c_uint64()
        self._out = (ctypes.byref(self._data), ctypes.byref(self._size))
        self.word = self._functions.word(self._handle).contents  # shared, and 0 at first

    def __reduce__(self) -> Any:
        """For a worker's process that is being started, which gets the file."""
        file = reduction.DupFd(self._file.value)
        return _attached, (file, self.workers, self.slots, self.slot_bytes)

    def started(self) -> None:
        """Notes that every worker has been started, so no other process needs the file."""
        file, self._file.value = self._file.value, -1
        if file >= 0:
            os.close(file)

    def retire(self) -> None:
        """Notes that the workers have ended."""
        self.started()
        _in_use.discard(self)

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle and not sys.is_finalizing():
            self._functions.destroy(handle)

    def address(self, worker: int, slot: int) -> int:
        found: int = self._functions.slot(self._handle, worker, slot)
        return found

    def claim(self, worker: int, avoid: int) -> int:
        found: int = self._functions.claim(self._handle, worker, avoid)
        return found

    def release(self, worker: int, slot: int) -> None:
        self._functions.release(self._handle, worker, slot)

    def _received(self, code: int) -> bytes | None:
        if code in (NOTHING, INTERRUPTED):
            return None
        if code != 0:
            raise RuntimeError(f"paceline.loader: a message could not be received (code {code})")
        return ctypes.string_at(self._data, self._size.value) if self._size.value else b""

    def tell(self, worker: int, message: bytes) -> None:
        if self._functions.tell(self._handle, worker, message, len(message)) != 0:
            raise MemoryError("paceline.loader: no memory for a message to a worker")

    def hear(self, worker: int, timeout_ms: int) -> bytes | None:
        """Returns a message to this worker, or None after the timeout or a signal."""
        return self._received(self._functions.hear(self._handle, worker, timeout_ms, *self._out))

    def answer(self, worker: int, message: bytes, timeout_ms: int, sent: ctypes.c_uint64) -> bool:
        """Sends a message. Returns False after the timeout; `sent` counts the bytes sent so far."""
        code = self._functions.answer(
            self._handle, worker, message, len(message), timeout_ms, ctypes.byref(sent)
        )
        if code < 0:
            raise RuntimeError(f"paceline.loader: a message could not be sent (code {code})")
        return bool(code == 0)

    def collect(self, timeout_ms: int) -> tuple[int, bytes] | None:
        """Returns a worker and its message, or None after the timeout or a signal. The signal's
        Python handlers run on return."""
        out = (ctypes.byref(self._worker), *self._out)
        code = self._functions.collect_now(self._handle, 0, *out)
        if code == NOTHING and timeout_ms > 0:
            code = self._functions.collect(self._handle, timeout_ms, *out)
        message = self._received(code)
        return None if message is None else (self._worker.value, message)


def _attached(file: Any, workers: int, slots: int, slot_bytes: int) -> Region:
    """Returns the region of the training process in a worker that was not forked."""
    descriptor = file.detach()
    try:
        return Region(workers, slots, slot_bytes, file=descriptor)
    finally:
        os.close(descriptor)
