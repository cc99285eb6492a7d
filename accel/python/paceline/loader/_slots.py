# SPDX-License-Identifier: Apache-2.0
"""Lends slots of shared memory to the batches of the training process.

A slot returns to its worker when its last tensor has died here and in every process that was forked
meanwhile. A forked child sees the same memory, so no new batch may be written there before.

A pipe shows when the children of a fork have ended, because only they hold its writing end.
"""

from __future__ import annotations

import ctypes
import functools
import os
import select
import weakref
from typing import Any

from paceline.loader._native import Region


class _Fork:
    """One fork of this process while slots were lent. If no pipe could be made, `reader` is None,
    and the child counts as alive for ever.
    """

    def __init__(self, reader: int | None) -> None:
        self.reader = reader

    def over(self) -> bool:
        if self.reader is None:
            return False
        if self.reader >= 0:
            poll = select.poll()
            poll.register(self.reader, select.POLLIN)
            if not poll.poll(0):
                return False
            os.close(self.reader)
            self.reader = -1
        return True

    def __del__(self) -> None:
        if self.reader is not None and self.reader >= 0:
            os.close(self.reader)


class Slots:
    """The slots of one region, in the process that owns it. The interpreter lock protects the
    object: each change is one operation on a dictionary.
    """

    def __init__(self, region: Region) -> None:
        self.region = region
        self._lent: dict[tuple[int, int], Any] = {}  # keys: worker and slot; values: None
        self._forks: dict[tuple[int, int], list[_Fork]] = {}
        self._waiting: dict[tuple[int, int], Any] = {}  # freed here, but not by forked children
        _all.add(self)

    def lend(self, worker: int, slot: int) -> Any:
        """Returns the slot as a buffer. The slot is lent until the buffer dies."""
        buffer = _buffer_type(self.region.slot_bytes).from_address(
            self.region.address(worker, slot)
        )
        self._lent[worker, slot] = None
        buffer.lender = (self, worker, slot)
        if self._waiting:
            self._retry()
        return buffer

    def freed(self, worker: int, slot: int) -> None:
        if os.getpid() != self.region.owner:
            return  # a forked child's copy of the reference
        self._lent.pop((worker, slot), None)
        if (worker, slot) in self._forks:
            self._waiting[worker, slot] = None
        else:
            self.region.release(worker, slot)

    def _retry(self) -> None:
        for key in list(self._waiting):
            if all(fork.over() for fork in self._forks[key]):
                del self._waiting[key]
                del self._forks[key]
                self.region.release(*key)

    def forked(self, fork: _Fork) -> None:
        for key in (*self._lent, *self._waiting):
            self._forks.setdefault(key, []).append(fork)

    @property
    def busy(self) -> bool:
        return os.getpid() == self.region.owner and bool(self._lent or self._waiting)


_all: weakref.WeakSet[Slots] = weakref.WeakSet()


@functools.cache
def _buffer_type(size: int) -> Any:
    def freed(self: Any) -> None:
        lender = self.__dict__.pop("lender", None)
        if lender is not None:
            lender[0].freed(lender[1], lender[2])

    return type("Slot", (ctypes.c_ubyte * size,), {"__del__": freed})


# -- forks

_pipe: list[tuple[int, int]] = []  # the pipe of the running fork


def _before() -> None:
    try:
        if any(slots.busy for slots in _all):
            _pipe.append(os.pipe2(os.O_CLOEXEC))
    except OSError:
        pass


def _in_parent() -> None:
    fork = None
    if _pipe:
        reader, writer = _pipe.pop()
        os.close(writer)
        fork = _Fork(reader)
    for slots in _all:
        if slots.busy:
            slots.forked(fork or _Fork(None))


def _in_child() -> None:
    if _pipe:
        os.close(_pipe.pop()[0])  # the writing end stays open as long as this process lives


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
