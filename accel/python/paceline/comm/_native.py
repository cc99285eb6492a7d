# SPDX-License-Identifier: Apache-2.0
"""paceline/comm.h through ctypes. Every call gives up the interpreter lock."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Callable

from paceline._library import API_VERSION, path

OK, EINVAL, ESYSTEM, EPEER = 0, -3, -4, -20
TEXT = 1024

SET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char), ctypes.c_uint64)
GET = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_char),
    ctypes.c_uint64,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.c_int32,
)


class CommError(RuntimeError):
    """A communicator has failed for good, on every rank that is left. `rank` is the one that is to blame, None where there is none."""

    def __init__(self, text: str, rank: int | None = None) -> None:
        super().__init__(text)
        self.rank = rank


class Store(ctypes.Structure):
    _fields_ = [("context", ctypes.c_void_p), ("set", SET), ("get", GET)]


class Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("ranks", ctypes.c_uint32),
        ("flows", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("host", ctypes.c_char_p),
        ("address", ctypes.c_char_p),
        ("plan", ctypes.c_char_p),
        ("silence_ms", ctypes.c_int32),
        ("timeout_ms", ctypes.c_int32),
    ]


class Functions:
    """Typed. Raises OSError or AttributeError where there are none."""

    def __init__(self) -> None:
        library = ctypes.CDLL(path())
        version = library.paceline_api_version()
        if version != API_VERSION:
            raise OSError(f"{path()} has API version {version}, not {API_VERSION}: install both from one release")
        number, size, pointer = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p

        def function(name: str, *arguments: Any) -> Callable[..., int]:
            found = getattr(library, f"paceline_comm_{name}")
            found.argtypes = arguments
            found.restype = ctypes.c_int
            return found

        self.create = function(
            "create",
            ctypes.POINTER(Options),
            ctypes.POINTER(Store),
            ctypes.POINTER(pointer),
            ctypes.c_char_p,
            size,
        )
        library.paceline_comm_destroy.argtypes = (pointer,)
        library.paceline_comm_destroy.restype = None
        self.destroy: Callable[[int], None] = library.paceline_comm_destroy
        self.allreduce = function("allreduce", pointer, pointer, size, number)
        self.reduce_scatter = function("reduce_scatter", pointer, pointer, pointer, size, number)
        self.allgather = function("allgather", pointer, pointer, pointer, size, number)
        self.broadcast = function("broadcast", pointer, pointer, size, number, number)
        self.barrier = function("barrier", pointer)
        self.allreduce_start = function("allreduce_start", pointer, pointer, size, number, ctypes.POINTER(size))
        self.wait = function("wait", pointer, size)
        self.abort = function("abort", pointer, ctypes.c_char_p)
        self.forked = function("forked", pointer)
        self.plan = function("plan", pointer, size, number, ctypes.c_char_p, size)
        self.tune = function("tune", pointer, ctypes.c_char_p, number, ctypes.c_char_p, size)
        self.shape = function("shape", pointer, ctypes.c_char_p, size)
        self.error = function("error", pointer, ctypes.c_char_p, size, ctypes.POINTER(ctypes.c_int32))


@functools.cache
def functions() -> Functions:
    return Functions()


@functools.cache
def why_unavailable() -> str:
    """Empty where the library can be used; else the reason."""
    try:
        functions()
    except (OSError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""
