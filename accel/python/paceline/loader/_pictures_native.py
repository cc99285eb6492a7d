# SPDX-License-Identifier: Apache-2.0
"""Batches of pictures from tar shards (paceline/pictures.h) for Python. Calls that wait release the
interpreter lock.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from paceline._core import library

FLOATS, SCALED, TURNED = 1, 2, 4
CROPS = {"none": 0, "random": 1, "center": 2}
FILTERS = {"box": 0, "bilinear": 1, "hamming": 2, "bicubic": 3, "lanczos": 4}
NOT_YET = 1
WHY = 1024
_EINVAL = -3
_SLICE = 100  # milliseconds of one wait; Python's signal handlers run in between


class Style(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("crop", ctypes.c_uint32),
        ("filter", ctypes.c_uint32),
        ("width", ctypes.c_uint32),
        ("height", ctypes.c_uint32),
        ("shorter", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("scale", ctypes.c_double * 2),
        ("ratio", ctypes.c_double * 2),
        ("flip", ctypes.c_double),
        ("mean", ctypes.c_float * 3),
        ("deviation", ctypes.c_float * 3),
    ]


class View(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int32)
        for name in (
            "x",
            "y",
            "width",
            "height",
            "full_width",
            "full_height",
            "left",
            "top",
            "flip",
        )
    ]


class Functions:
    """The exported functions, typed. Raises OSError or AttributeError if the library lacks them."""

    def __init__(self) -> None:
        waiting = functools.partial(library.typed, library.opened())
        quick = functools.partial(library.typed, library.opened(ctypes.PyDLL))
        handle, number, size = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
        text, why = ctypes.POINTER(ctypes.c_char_p), (ctypes.c_char_p, size)
        numbers, batch = ctypes.c_void_p, ctypes.POINTER(size)
        style, opened = ctypes.POINTER(Style), ctypes.POINTER(handle)
        self.open = waiting(
            "paceline_pictures_open", handle, style, text, ctypes.c_char_p, opened, *why
        )
        self.close = waiting("paceline_pictures_close", handle, result=None)
        self.begin = quick(
            "paceline_pictures_begin", handle, size, batch, number, handle, size, numbers, batch
        )
        self.wait = waiting("paceline_pictures_wait", handle, size, number, *why)
        self.view = waiting(
            "paceline_pictures_view", handle, size, size, ctypes.POINTER(View), *why
        )
        self.decoding = quick("paceline_pictures_decoding", handle, result=size)


@functools.cache
def functions() -> Functions:
    return Functions()


class Pictures:
    """Threads that make batches. `close` waits for the threads. The memory of the batches must stay
    until then.
    """

    def __init__(
        self, shards: Any, style: Style, extensions: tuple[str, ...], target: str | None
    ) -> None:
        self._shards = shards  # its handle must outlive ours
        self._functions = functions()
        self._handle = ctypes.c_void_p()
        names = (ctypes.c_char_p * (len(extensions) + 1))(
            *(name.encode() for name in extensions), None
        )
        label = None if target is None else target.encode()
        why = ctypes.create_string_buffer(WHY)
        opened = ctypes.byref(self._handle)
        code = self._functions.open(
            shards._handle, ctypes.byref(style), names, label, opened, why, WHY
        )
        if code != 0:
            said = why.value.decode(errors="replace") or "wrong arguments"
            raise ValueError(said) if code == _EINVAL else OSError(said)

    def close(self) -> None:
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle:
            self._functions.close(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()

    def begin(
        self, epoch: int, samples: list[int], memory: int, size: int, numbers: int | None
    ) -> int:
        batch = ctypes.c_uint64()
        own = (ctypes.c_uint64 * len(samples))(*samples)
        if (
            self._functions.begin(
                self._handle, epoch, own, len(samples), memory, size, numbers, ctypes.byref(batch)
            )
            != 0
        ):
            raise MemoryError(
                "a batch of pictures cannot be begun: no memory for it, or this process was forked"
            )
        return batch.value

    def wait(self, batch: int) -> None:
        why = ctypes.create_string_buffer(WHY)
        while (code := self._functions.wait(self._handle, batch, _SLICE, why, WHY)) == NOT_YET:
            pass  # the interpreter runs its signal handlers here
        if code != 0:
            raise OSError(why.value.decode(errors="replace") or "the batch is of another process")

    def view(self, epoch: int, sample: int) -> dict[str, int]:
        why, view = ctypes.create_string_buffer(WHY), View()
        if self._functions.view(self._handle, epoch, sample, ctypes.byref(view), why, WHY) != 0:
            raise OSError(why.value.decode(errors="replace"))
        return {name: getattr(view, name) for name, *_ in View._fields_}

    @property
    def decoding(self) -> float:
        """Seconds of processor time that the threads spent in the JPEG decoder."""
        return float(self._functions.decoding(self._handle)) * 1e-9
