# SPDX-License-Identifier: Apache-2.0
"""A communicator on plain memory, for interpreters without PyTorch. It calls the functions that
paceline.comm calls. The store is a folder.
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

from paceline.comm._native import GET, SET, TEXT, Options, Store, functions

F32 = 0


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
    def __init__(
        self, store: Store, name: str, rank: int, ranks: int, plan: str, address: str
    ) -> None:
        where = address.encode() or None
        options = Options(
            ctypes.sizeof(Options),
            rank,
            ranks,
            0,
            name.encode(),
            None,
            where,
            plan.encode(),
            30_000,
            120_000,
        )
        self.handle = ctypes.c_void_p()
        self._residuals: dict[tuple[int, int], ctypes.Array[ctypes.c_float]] = {}
        error = ctypes.create_string_buffer(TEXT)
        if functions().create(options, store, self.handle, error, TEXT) != 0:
            raise RuntimeError(f"rank {rank}: {error.value.decode()}")

    def all_reduce(self, address: int, count: int) -> None:
        if functions().all_reduce(self.handle, address, count, F32) != 0:
            error = ctypes.create_string_buffer(TEXT)
            functions().error(self.handle, error, TEXT, None)
            raise RuntimeError(error.value.decode())

    def all_to_all(self, source: int, target: int, count: int) -> None:
        if functions().all_to_all(self.handle, source, target, count, F32) != 0:
            raise RuntimeError("an all_to_all failed")

    def all_reduce_coded(self, address: int, count: int, codec: int) -> None:
        """Sums in coded form. What is lost is kept for the next array of the same size."""
        size, ticket = ctypes.c_uint64(), ctypes.c_uint64()
        functions().residual_count(self.handle, count, size)
        residual = self._residuals.setdefault((count, codec), (ctypes.c_float * size.value)())
        begun = functions().all_reduce_coded(
            self.handle, address, count, codec, 0, residual, size.value, ticket
        )
        if begun != 0 or functions().wait(self.handle, ticket) != 0:
            raise RuntimeError("a coded all_reduce failed")

    def tune(self) -> str:
        """Measures, and uses the quickest way from now on."""
        text = ctypes.create_string_buffer(TEXT)
        if functions().tune(self.handle, None, 3000, text, TEXT) != 0:
            raise RuntimeError("measuring failed")
        return text.value.decode()

    def barrier(self) -> None:
        if functions().barrier(self.handle) != 0:
            raise RuntimeError("a barrier failed")

    def close(self) -> None:
        functions().destroy(self.handle)
