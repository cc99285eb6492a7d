# SPDX-License-Identifier: Apache-2.0
"""paceline/comm.h through ctypes. Every call gives up the interpreter lock."""

from __future__ import annotations

import ctypes
import functools

from paceline._core import library

OK, EINVAL, ESYSTEM, EPEER = 0, -3, -4, -20
TEXT = 1024

SET = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char), ctypes.c_uint64
)
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
    """A communicator has failed for good, on every rank that is left. `rank` is the one that is to
    blame, None where there is none; `of_peer` whether that is another rank than the one that raises
    this.
    """

    def __init__(self, text: str, rank: int | None = None, of_peer: bool = False) -> None:
        super().__init__(text)
        self.rank, self.of_peer = rank, of_peer


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
        ("heartbeat_timeout_ms", ctypes.c_int32),
        ("timeout_ms", ctypes.c_int32),
    ]


class Functions:
    """Typed. Raises OSError or AttributeError where there are none."""

    def __init__(self) -> None:
        function = functools.partial(library.typed, library.opened())
        number, size, pointer = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
        self.create = function(
            "paceline_comm_create",
            ctypes.POINTER(Options),
            ctypes.POINTER(Store),
            ctypes.POINTER(pointer),
            ctypes.c_char_p,
            size,
        )
        self.destroy = function("paceline_comm_destroy", pointer, result=None)
        self.all_reduce = function("paceline_comm_all_reduce", pointer, pointer, size, number)
        self.reduce_scatter = function(
            "paceline_comm_reduce_scatter", pointer, pointer, pointer, size, number
        )
        self.all_gather = function(
            "paceline_comm_all_gather", pointer, pointer, pointer, size, number
        )
        self.broadcast = function("paceline_comm_broadcast", pointer, pointer, size, number, number)
        self.reduce = function("paceline_comm_reduce", pointer, pointer, size, number, number)
        self.barrier = function("paceline_comm_barrier", pointer)
        counts = ctypes.POINTER(size)
        self.all_to_all = function(
            "paceline_comm_all_to_all", pointer, pointer, pointer, size, number
        )
        self.all_to_all_v = function(
            "paceline_comm_all_to_all_v", pointer, pointer, counts, pointer, counts, number
        )
        self.send = function("paceline_comm_send", pointer, pointer, size, number, number)
        self.receive = function("paceline_comm_receive", pointer, pointer, size, number, number)
        self.exchange = function(
            "paceline_comm_exchange", pointer, pointer, size, number, pointer, size, number, number
        )
        self.all_reduce_sparse = function(
            "paceline_comm_all_reduce_sparse", pointer, pointer, pointer, size, size, number, counts
        )
        self.sparse_result = function(
            "paceline_comm_sparse_result", pointer, pointer, pointer, size
        )
        self.all_reduce_start = function(
            "paceline_comm_all_reduce_start", pointer, pointer, size, number, ctypes.POINTER(size)
        )
        self.residual_count = function(
            "paceline_comm_residual_count", pointer, size, ctypes.POINTER(size)
        )
        self.all_reduce_coded = function(
            "paceline_comm_all_reduce_coded_start",
            pointer,
            pointer,
            size,
            number,
            number,
            pointer,
            size,
            ctypes.POINTER(size),
        )
        self.orthonormalize = function("paceline_comm_orthonormalize", pointer, size, size)
        self.wait = function("paceline_comm_wait", pointer, size)
        self.is_completed = function(
            "paceline_comm_is_completed", pointer, size, ctypes.POINTER(number)
        )
        self.abort = function("paceline_comm_abort", pointer, ctypes.c_char_p)
        self.forked = function("paceline_comm_forked", pointer)
        self.plan = function("paceline_comm_plan", pointer, size, number, ctypes.c_char_p, size)
        self.tune = function(
            "paceline_comm_tune", pointer, ctypes.c_char_p, number, ctypes.c_char_p, size
        )
        self.shape = function("paceline_comm_shape", pointer, ctypes.c_char_p, size)
        self.error = function(
            "paceline_comm_error", pointer, ctypes.c_char_p, size, ctypes.POINTER(ctypes.c_int32)
        )


@functools.cache
def functions() -> Functions:
    return Functions()


@functools.cache
def why_unavailable() -> str:
    """Returns an empty text if the library can be used, else the reason."""
    return library.why_unavailable(functions)
