# SPDX-License-Identifier: Apache-2.0
"""Samples in tar shards, read natively (paceline/shards.h)."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

from paceline._core import library
from paceline.loader._ordered import Order, Ordered


class _Functions:
    """The exported functions, typed. Raises OSError or AttributeError if the library lacks them."""

    def __init__(self) -> None:
        waiting = functools.partial(library.typed, library.opened())  # reads wait for the disk
        quick = functools.partial(library.typed, library.opened(ctypes.PyDLL))
        handle, number, size = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
        text, order = ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(Order)
        handles, why = ctypes.POINTER(handle), (ctypes.c_char_p, size)
        self.open = waiting("paceline_shards_open", text, number, number, handles, *why)
        self.close = waiting("paceline_shards_close", handle, result=None)
        self.samples = quick("paceline_shards_samples", handle, result=size)
        self.identity = quick("paceline_shards_identity", handle, result=size)
        self.sample = quick("paceline_shards_sample", handle, size, text, ctypes.POINTER(number))
        self.member = quick(
            "paceline_shards_member", handle, size, number, text, ctypes.POINTER(size)
        )
        self.read = waiting(
            "paceline_shards_read", handle, size, number, ctypes.c_void_p, size, *why
        )
        self.order = waiting(
            "paceline_shards_order", handle, order, size, size, ctypes.POINTER(size)
        )
        python = ctypes.pythonapi
        self.new_bytes = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)(
            ("PyBytes_FromStringAndSize", python)
        )
        self.address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(
            ("PyBytes_AsString", python)
        )


@functools.cache
def _functions() -> _Functions:
    return _Functions()


class TarShards(Ordered):
    """A dataset of the samples in tar files, by number, in webdataset's convention.

    Neighbouring members whose names differ only in the extension form one sample. Opening reads
    every header of every shard, and no data.

    Args:
        paths: the tar files, in the order that all ranks have.
        decode: called with each sample, a dict `{"__key__": key, extension: bytes, ...}`. Its
            result is the sample. None: the sample is that dict.
        threads: number of shards that are opened at a time.

    Raises:
        OSError: a shard cannot be read, is compressed or was cut off; the text names it.
        ValueError: `paths` is empty.
        TypeError: `paths` is a single path.

    Example:
        >>> with tarfile.open(folder / "train.tar", "w") as tar:
        ...     for name in ("a.cls", "b.cls"):
        ...         member = tarfile.TarInfo(name)
        ...         member.size = 1
        ...         tar.addfile(member, io.BytesIO(b"7"))
        >>> shards = paceline.loader.TarShards([folder / "train.tar"])
        >>> shards[1]
        {'__key__': 'b', 'cls': b'7'}
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        decode: Callable[[dict[str, Any]], Any] | None = None,
        threads: int = 8,
    ) -> None:
        self._decode, self._threads = decode, threads
        self._open(paths, _functions(), max(1, threads))

    def __reduce__(self) -> Any:  # a spawned worker opens the shards itself
        return TarShards, (self._paths, self._decode, self._threads)

    def _sample(self, at: int) -> dict[str, Any]:
        key, members = ctypes.c_char_p(), ctypes.c_uint32()
        self._functions.sample(self._handle, at, ctypes.byref(key), ctypes.byref(members))
        sample: dict[str, Any] = {"__key__": (key.value or b"").decode(errors="surrogateescape")}
        for member in range(members.value):
            extension, size = ctypes.c_char_p(), ctypes.c_uint64()
            self._functions.member(
                self._handle, at, member, ctypes.byref(extension), ctypes.byref(size)
            )
            # Writing to bytes is safe here, because no other code has this object yet.
            data = self._functions.new_bytes(None, size.value)
            self._read(at, member, self._functions.address_of(data), size.value)
            sample[(extension.value or b"").decode(errors="surrogateescape")] = data
        return sample
