# SPDX-License-Identifier: Apache-2.0
"""Samples that are rows of NumPy's files or records of one size (paceline/records.h)."""

from __future__ import annotations

import ctypes
import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from paceline._core import library
from paceline.loader._ordered import Order, Ordered

_DTYPES = {
    "|b1": "bool",
    "|i1": "int8",
    "|u1": "uint8",
    "<i2": "int16",
    "<i4": "int32",
    "<i8": "int64",
    "<u2": "uint16",
    "<u4": "uint32",
    "<u8": "uint64",
    "<f2": "float16",
    "<f4": "float32",
    "<f8": "float64",
}


class _Functions:
    """The exported functions, typed. Raises OSError or AttributeError if the library lacks them."""

    def __init__(self) -> None:
        waiting = functools.partial(library.typed, library.opened())  # reads wait for the disk
        quick = functools.partial(library.typed, library.opened(ctypes.PyDLL))
        handle, number, size = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
        text, order, sizes = (
            ctypes.POINTER(ctypes.c_char_p),
            ctypes.POINTER(Order),
            ctypes.POINTER(size),
        )
        handles, why = ctypes.POINTER(handle), (ctypes.c_char_p, size)
        shape, numbers = ctypes.POINTER(sizes), ctypes.POINTER(number)
        self.open = waiting("paceline_records_open", text, number, size, handles, *why)
        self.close = waiting("paceline_records_close", handle, result=None)
        self.samples = quick("paceline_records_samples", handle, result=size)
        self.identity = quick("paceline_records_identity", handle, result=size)
        self.columns = quick("paceline_records_columns", handle, result=number)
        self.column = quick(
            "paceline_records_column", handle, number, text, text, shape, numbers, sizes
        )
        self.read = waiting(
            "paceline_records_read", handle, size, number, ctypes.c_void_p, size, *why
        )
        self.order = waiting("paceline_records_order", handle, order, size, size, sizes)


@functools.cache
def _functions() -> _Functions:
    return _Functions()


class RecordShards(Ordered):
    """A dataset of the rows of .npy and .npz files, by number over all files.

    Reading a row reads only that row: no file is loaded or mapped. For `ShardSampler` a file is a
    shard. A row of an array of shape (rows, ...) is a tensor of shape (...).

    Args:
        paths: the files, as numpy.save and numpy.savez write them, in the order that all ranks
            have.
        decode: called with each row; its result is the sample. None: the sample is the row. The
            row of an .npy is a tensor. The row of an .npz is a dict from array names to tensors.
        dtype: of files without a header, which hold one record after the other.
        shape: the shape of one record in files without a header.

    Raises:
        OSError: a file cannot be read or is compressed; the text names it and the remedy.
        ValueError: `shape` is given without a `dtype`, or has a side below 1; or `paths` is empty.
        TypeError: `paths` is a single path, or this PyTorch lacks the dtype of a file.

    Example:
        >>> numpy.save(folder / "tokens.npy", numpy.arange(12).reshape(4, 3))
        >>> rows = paceline.loader.RecordShards([folder / "tokens.npy"])
        >>> len(rows), rows[2].tolist()
        (4, [6, 7, 8])
        >>> sampler = paceline.loader.ShardSampler(rows, seed=1, rank=0, ranks=1)
        >>> loader = paceline.loader.DataLoader(rows, batch_size=2, sampler=sampler)
        >>> [batch.shape for batch in loader]
        [torch.Size([2, 3]), torch.Size([2, 3])]
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        decode: Callable[[Any], Any] | None = None,
        *,
        dtype: torch.dtype | None = None,
        shape: Sequence[int] = (),
    ) -> None:
        if dtype is None and len(shape) > 0:
            raise ValueError(
                f"shape is {tuple(shape)}, without a dtype: NumPy's files have their own"
            )
        if any(side < 1 for side in shape):
            raise ValueError(f"shape is {tuple(shape)}: each side must be at least 1")
        self._decode, self._raw = decode, None if dtype is None else (dtype, tuple(shape))
        size = 0 if dtype is None else math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
        self._open(paths, _functions(), size)
        self._columns = [
            self._column(number) for number in range(self._functions.columns(self._handle))
        ]

    def _column(self, number: int) -> tuple[str, torch.dtype, tuple[int, ...], int]:
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        shape, sides, size = ctypes.POINTER(ctypes.c_uint64)(), ctypes.c_uint32(), ctypes.c_uint64()
        results = (name, text, shape, sides, size)
        self._functions.column(self._handle, number, *(ctypes.byref(each) for each in results))
        if self._raw is not None:
            return "", *self._raw, size.value
        own = (text.value or b"").decode()
        dtype = getattr(torch, _DTYPES[own], None)
        if dtype is None:
            raise TypeError(
                f"{self._paths[0]}: this PyTorch has no {_DTYPES[own]}: store another dtype"
            )
        return (
            (name.value or b"").decode(errors="surrogateescape"),
            dtype,
            tuple(shape[: sides.value]),
            size.value,
        )

    def __reduce__(self) -> Any:  # a spawned worker opens the files itself
        dtype, shape = self._raw or (None, ())
        return functools.partial(RecordShards, dtype=dtype, shape=shape), (
            self._paths,
            self._decode,
        )

    def _sample(self, at: int) -> Any:
        sample = {}
        for number, (name, dtype, shape, size) in enumerate(self._columns):
            sample[name] = row = torch.empty(shape, dtype=dtype, device="cpu")
            self._read(at, number, row.data_ptr(), size)
        return sample[""] if list(sample) == [""] else sample
