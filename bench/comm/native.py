# SPDX-License-Identifier: Apache-2.0
"""comm.h by ctypes, as far as the benchmark needs it. The store is a folder."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

F32 = 0
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


def folder_store(folder: Path) -> Store:
    def path(key: bytes) -> Path:
        return folder / key.decode().replace("/", "_")

    def put(_context: int, key: bytes, value: ctypes._Pointer[ctypes.c_char], size: int) -> int:
        part = path(key).with_suffix(f".{os.getpid()}")
        part.write_bytes(ctypes.string_at(value, size))
        part.rename(path(key))
        return 0

    def take(
        _context: int,
        key: bytes,
        value: ctypes._Pointer[ctypes.c_char],
        capacity: int,
        size: ctypes._Pointer[ctypes.c_uint64],
        timeout_ms: int,
    ) -> int:
        until = time.monotonic() + timeout_ms / 1000
        while not path(key).exists():
            if time.monotonic() >= until:
                return 1
            time.sleep(0.01)
        data = path(key).read_bytes()
        if len(data) > capacity:
            return -1
        ctypes.memmove(value, data, len(data))
        size[0] = len(data)
        return 0

    return Store(None, SET(put), GET(take))


class Communicator:
    def __init__(self, store: Store, name: str, rank: int, ranks: int, plan: str) -> None:
        self.library = ctypes.CDLL(os.environ["PACELINE_LIBRARY"])
        options = Options(
            ctypes.sizeof(Options), rank, ranks, 0, name.encode(), None, None, plan.encode(), 30_000, 120_000
        )
        self.handle = ctypes.c_void_p()
        error = ctypes.create_string_buffer(1024)
        code = self.library.paceline_comm_create(
            ctypes.byref(options), ctypes.byref(store), ctypes.byref(self.handle), error, ctypes.c_uint64(1024)
        )
        if code != 0:
            raise RuntimeError(f"rank {rank}: {error.value.decode()}")

    def allreduce(self, address: int, count: int) -> None:
        code = self.library.paceline_comm_allreduce(
            self.handle, ctypes.c_void_p(address), ctypes.c_uint64(count), ctypes.c_uint32(F32)
        )
        if code != 0:
            error = ctypes.create_string_buffer(1024)
            self.library.paceline_comm_error(self.handle, error, ctypes.c_uint64(1024), None)
            raise RuntimeError(error.value.decode())

    def tune(self) -> str:
        """Measures, and goes the quickest way from now on."""
        text = ctypes.create_string_buffer(1024)
        if self.library.paceline_comm_tune(self.handle, None, ctypes.c_uint32(3000), text, ctypes.c_uint64(1024)) != 0:
            raise RuntimeError("measuring failed")
        return text.value.decode()

    def barrier(self) -> None:
        if self.library.paceline_comm_barrier(self.handle) != 0:
            raise RuntimeError("a barrier failed")

    def close(self) -> None:
        self.library.paceline_comm_destroy(self.handle)
