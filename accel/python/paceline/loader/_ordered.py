# SPDX-License-Identifier: Apache-2.0
"""The common base of datasets that number their samples file by file, and the order of an epoch's
samples (paceline/shards.h).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import Dataset

SHUFFLE, DROP_LAST = 1, 2
WHY = 1024


class Order(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("epoch", ctypes.c_uint64),
        ("rank", ctypes.c_uint32),
        ("ranks", ctypes.c_uint32),
        ("window", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class Ordered(Dataset[Any]):
    """A dataset over files. Subclasses call `_open` with their functions, and define `_sample`. The
    files stay open as long as the object lives. A forked child may read them, too.
    """

    _functions: Any
    _decode: Callable[[Any], Any] | None

    def _open(self, paths: Sequence[str | os.PathLike[str]], functions: Any, option: int) -> None:
        if isinstance(paths, (str, bytes, os.PathLike)):
            raise TypeError(
                f"paths is {paths!r}: it must be a list of paths, in the order that all ranks have"
            )
        self._paths = [os.fspath(each) for each in paths]
        if not self._paths:
            raise ValueError(
                "paths is empty: pass one file at least; a pattern may have matched none"
            )
        self._functions, self._handle = functions, ctypes.c_void_p()
        names = (ctypes.c_char_p * len(self._paths))(*(os.fsencode(each) for each in self._paths))
        why = ctypes.create_string_buffer(WHY)
        if (
            functions.open(names, len(self._paths), option, ctypes.byref(self._handle), why, WHY)
            != 0
        ):
            raise OSError(
                why.value.decode(errors="replace") or f"{len(self._paths)} files cannot be opened"
            )
        self._length = int(functions.samples(self._handle))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._functions.close(self._handle)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        at = int(index) + (self._length if index < 0 else 0)
        if not 0 <= at < self._length:
            raise IndexError(f"sample {index} of {self._length}")
        sample = self._sample(at)
        return sample if self._decode is None else self._decode(sample)

    def _sample(self, at: int) -> Any:
        raise NotImplementedError

    def _read(self, at: int, part: int, target: int, size: int) -> None:
        """Reads one whole part of a sample into memory. Raises OSError."""
        why = ctypes.create_string_buffer(WHY)
        if self._functions.read(self._handle, at, part, target, size, why, WHY) != 0:
            raise OSError(why.value.decode(errors="replace"))

    @property
    def identity(self) -> int:
        """A digest of the samples in their order. It does not depend on the paths."""
        return int(self._functions.identity(self._handle))

    def _places(self, order: Order, first: int, count: int, samples: Any = None) -> Any:
        """Returns the samples at these places of the whole epoch, over all ranks."""
        samples = (ctypes.c_uint64 * count)() if samples is None else samples
        whole = Order.from_buffer_copy(order)
        whole.rank, whole.ranks = 0, 1
        if self._functions.order(self._handle, ctypes.byref(whole), first, count, samples) != 0:
            raise MemoryError("no memory for a window of shards")
        return samples
