# SPDX-License-Identifier: Apache-2.0
"""Samples in tar shards, read natively (paceline/shards.h), and the order in which each rank sees them."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch.distributed
from torch.utils.data import Dataset, Sampler

from paceline import _library

SHUFFLE, DROP_LAST = 1, 2
_CHUNK = 4096  # samples of the order asked for at once
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


class _Functions:
    """The exported functions, typed. Raises OSError or AttributeError where there are none."""

    def __init__(self) -> None:
        waiting = functools.partial(_library.typed, _library.opened())  # reads wait for the disk
        quick = functools.partial(_library.typed, _library.opened(ctypes.PyDLL))
        handle, number, size = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
        text, order = ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(Order)
        handles, why = ctypes.POINTER(handle), (ctypes.c_char_p, size)
        self.open = waiting("paceline_shards_open", text, number, number, handles, *why)
        self.close = waiting("paceline_shards_close", handle, result=None)
        self.samples = quick("paceline_shards_samples", handle, result=size)
        self.identity = quick("paceline_shards_identity", handle, result=size)
        self.sample = quick("paceline_shards_sample", handle, size, text, ctypes.POINTER(number))
        self.member = quick("paceline_shards_member", handle, size, number, text, ctypes.POINTER(size))
        self.read = waiting("paceline_shards_read", handle, size, number, ctypes.c_void_p, size, *why)
        self.length = quick("paceline_shards_length", handle, order, ctypes.POINTER(size))
        self.order = waiting("paceline_shards_order", handle, order, size, size, ctypes.POINTER(size))
        python = ctypes.pythonapi
        self.new_bytes = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)(
            ("PyBytes_FromStringAndSize", python)
        )
        self.address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("PyBytes_AsString", python))


@functools.cache
def _functions() -> _Functions:
    return _Functions()


class Ordered(Dataset[Any]):
    """What ShardSampler orders: samples numbered file by file. Subclasses open `_handle` and give the functions that take it."""

    _functions: Any
    _handle: ctypes.c_void_p

    @property
    def identity(self) -> int:
        """A number of what the samples are, in their order; paths may change without it."""
        return int(self._functions.identity(self._handle))

    def _length_of(self, order: Order) -> int:
        length = ctypes.c_uint64()
        if self._functions.length(self._handle, ctypes.byref(order), ctypes.byref(length)) != 0:
            raise ValueError("the order is none")
        return length.value

    def _places(self, order: Order, first: int, count: int) -> list[int]:
        samples = (ctypes.c_uint64 * count)()
        if self._functions.order(self._handle, ctypes.byref(order), first, count, samples) != 0:
            raise MemoryError("no memory for a window of shards")
        return list(samples)


class TarShards(Ordered):
    """The samples of tar files in webdataset's convention, by number: {"__key__": key, extension: bytes, …}, or what `decode`
    makes of it. Opening reads every header of every shard, `threads` shards at a time. A shard that cannot be read, is
    compressed or was cut off is an OSError that names it.

        shards = paceline.loader.TarShards(sorted(glob("train-*.tar")), decode)
        sampler = paceline.loader.ShardSampler(shards, seed=1)
        loader = paceline.loader.DataLoader(shards, batch_size=64, sampler=sampler, num_workers=8)
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        decode: Callable[[dict[str, Any]], Any] | None = None,
        threads: int = 8,
    ) -> None:
        if isinstance(paths, (str, bytes, os.PathLike)):
            raise TypeError(f"paths is {paths!r}: it must be a list of paths, in the order that all ranks have")
        self._paths = [os.fspath(each) for each in paths]
        self._decode, self._threads = decode, threads
        self._functions = _functions()
        self._handle = ctypes.c_void_p()
        names = (ctypes.c_char_p * len(self._paths))(*(os.fsencode(each) for each in self._paths))
        why = ctypes.create_string_buffer(WHY)
        handle = ctypes.byref(self._handle)
        if self._functions.open(names, len(self._paths), max(1, threads), handle, why, WHY) != 0:
            raise OSError(why.value.decode(errors="replace"))
        self._length = int(self._functions.samples(self._handle))

    def __reduce__(self) -> Any:  # workers that are not forked open the shards themselves
        return TarShards, (self._paths, self._decode, self._threads)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._functions.close(self._handle)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        at = int(index) + (self._length if index < 0 else 0)
        key, members = ctypes.c_char_p(), ctypes.c_uint32()
        if at < 0 or self._functions.sample(self._handle, at, ctypes.byref(key), ctypes.byref(members)) != 0:
            raise IndexError(f"sample {index} of {self._length}")
        sample: dict[str, Any] = {"__key__": (key.value or b"").decode(errors="surrogateescape")}
        for member in range(members.value):
            extension, size = ctypes.c_char_p(), ctypes.c_uint64()
            self._functions.member(self._handle, at, member, ctypes.byref(extension), ctypes.byref(size))
            data = self._functions.new_bytes(None, size.value)  # nobody else has them yet
            why = ctypes.create_string_buffer(WHY)
            target = self._functions.address_of(data)
            if self._functions.read(self._handle, at, member, target, size.value, why, WHY) != 0:
                raise OSError(why.value.decode(errors="replace"))
            sample[(extension.value or b"").decode(errors="surrogateescape")] = data
        return sample if self._decode is None else self._decode(sample)


def _check(name: str, value: int, least: int, bits: int) -> None:
    if not least <= value < 1 << bits:
        raise ValueError(f"{name} is {value}: it must be at least {least} and below 2**{bits}")


class ShardSampler(Sampler[int]):
    """One rank's samples of an epoch. Shuffled, the shards are permuted, and then the samples within each `window` of shards that are
    neighbours now; ranks divide the sequence into blocks, so each reads its own shards. All of it follows from `seed`, the epoch and the
    shards' sizes, and from no random state.

    An epoch is gone on from at any sample: what a loader has delivered, not what it has fetched ahead, is the program's to say.

        state = sampler.state_dict(delivered=(step + 1) * batch_size)
        sampler.load_state_dict(state)  # the next pass begins there
    """

    def __init__(
        self,
        shards: Ordered,
        *,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        ranks: int | None = None,
        window: int = 4,
        drop_last: bool = False,
    ) -> None:
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        if ranks is None:
            ranks = torch.distributed.get_world_size() if distributed else 1
        if rank is None:
            rank = torch.distributed.get_rank() if distributed else 0
        for name, value, least, bits in (
            ("ranks", ranks, 1, 32),
            ("rank", rank, 0, 32),
            ("window", window, 1, 32),
            ("seed", seed, 0, 64),
        ):
            _check(name, value, least, bits)
        if rank >= ranks:
            raise ValueError(f"rank is {rank}: it must be below ranks, which is {ranks}")
        self._shards = shards
        flags = (SHUFFLE if shuffle else 0) | (DROP_LAST if drop_last else 0)
        self._order = Order(ctypes.sizeof(Order), flags, seed, 0, rank, ranks, window, 0)
        self._first = 0

    def set_epoch(self, epoch: int) -> None:
        """Another epoch begins at its begin; the same one stays where it was told to go on."""
        _check("epoch", epoch, 0, 64)
        if epoch != self._order.epoch:
            self._order.epoch, self._first = epoch, 0

    def __len__(self) -> int:
        return self._shards._length_of(self._order) - self._first

    def __iter__(self) -> Iterator[int]:
        # The pass is that of this moment, whatever is set while it runs.
        order, first = Order.from_buffer_copy(self._order), self._first
        length = self._shards._length_of(order)
        while first < length:
            count = min(_CHUNK, length - first)
            yield from self._shards._places(order, first, count)
            first += count

    def _identity(self) -> dict[str, int]:
        """What a state fits."""
        order = self._order
        of_order = {name: int(getattr(order, name)) for name in ("flags", "seed", "rank", "ranks", "window")}
        return {**of_order, "shards": self._shards.identity}

    def state_dict(self, delivered: int) -> dict[str, int]:
        """Of this epoch, when the program has had `delivered` samples of the pass that runs, or has ended."""
        left = len(self)
        if not 0 <= delivered <= left:
            raise ValueError(f"delivered is {delivered}: this pass has {left} samples")
        return {**self._identity(), "epoch": int(self._order.epoch), "first": self._first + delivered}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """The next pass begins where the state was taken."""
        own = self._identity()
        other = {name: (state.get(name), value) for name, value in own.items() if state.get(name) != value}
        if other:
            said = ", ".join(f"{name} was {was} and is {now}" for name, (was, now) in other.items())
            raise ValueError(f"the state is of another order: {said}; go on with what it was saved with")
        epoch, first = int(state["epoch"]), int(state["first"])
        _check("epoch", epoch, 0, 64)
        length = self._shards._length_of(self._order)
        if not 0 <= first <= length:
            raise ValueError(f"first is {first}: this rank has {length} samples")
        self._order.epoch, self._first = epoch, first
