# SPDX-License-Identifier: Apache-2.0
"""The functions of paceline/comm.h (libpaceline.so), typed for ctypes. _handle, _communicator and
_power_sgd call them. Every call releases the interpreter lock.
"""

from __future__ import annotations

import ctypes
import functools

from paceline._core import library

OK, EINVAL, ESYSTEM, EPEER = 0, -3, -4, -20
TEXT = 1024
CODECS = {"FP16": 1, "BF16": 2, "Int8": 3, "TopK": 4, "OneBit": 5, "DGC": 6}  # paceline_comm_codec

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
    """A communicator has failed, on all ranks and for good. Close it; ranks that go on make a new
    one.

    Args:
        text: what failed, with the numbers of ranks.
        rank: the rank to blame, as a number within the communicator; None if no rank is. The
            exception has it as `rank`.
        of_peer: whether another rank than this one is to blame; the exception has it too.

    Example:
        >>> raise paceline.comm.CommError("rank 3 has ended without a goodbye", 3, of_peer=True)
        Traceback (most recent call last):
        paceline.comm._native.CommError: rank 3 has ended without a goodbye
    """

    def __init__(self, text: str, rank: int | None = None, of_peer: bool = False) -> None:
        super().__init__(text)
        self.rank, self.of_peer = rank, of_peer


class Store(ctypes.Structure):
    """paceline_comm_store."""

    _fields_ = [("context", ctypes.c_void_p), ("set", SET), ("get", GET)]


class Options(ctypes.Structure):
    """paceline_comm_options."""

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
    """The functions of comm.h with their types, named as there without `paceline_comm_`.

    Raises:
        OSError: if there is no library.
        AttributeError: if the library lacks a function, because it is older.
    """

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
    """Loads the library at the first call, and raises as `Functions` does."""
    return Functions()


@functools.cache
def why_unavailable() -> str:
    """Returns an empty text if the library can be used, else the reason."""
    return library.why_unavailable(functions)
