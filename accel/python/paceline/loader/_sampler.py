# SPDX-License-Identifier: Apache-2.0
"""The order in which each rank sees the samples of shards, and how an epoch is gone on from, by as
many ranks or by others.
"""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Iterator
from typing import Any

from torch.utils.data import Sampler

from paceline.loader import _resume
from paceline.loader._ordered import DROP_LAST, SHUFFLE, Order, Ordered

_CHUNK = 4096  # samples of the order asked for at once


class ShardSampler(Sampler[int]):
    """One rank's samples of an epoch. It permutes the shards, then the samples within each `window`
    of shards that are then neighbours. Ranks divide that sequence into blocks, so each reads its
    own shards. The order follows from `seed`, the epoch and the sizes of the shards, and from no
    random state.

    An epoch can be resumed at any sample. A loader fetches ahead, so the program says how many
    samples it has had. Another number of ranks may resume: they divide what was not delivered, no
    sample of it twice. Ranks that train in step have had the same number, so the state of any one
    will do; otherwise give the list of the states of all ranks.

    Args:
        shards: `TarShards` or `RecordShards`.
        shuffle: False keeps the order of the files.
        seed: two samplers with one seed have the same order.
        rank: this rank's number; None takes it from torch.distributed or the environment.
        ranks: how many ranks there are; None likewise.
        window: how many neighbouring shards are shuffled together.
        drop_last: leaves out the samples that the ranks cannot share out evenly.

    Example:
        >>> numpy.save(folder / "six.npy", numpy.arange(6))
        >>> rows = paceline.loader.RecordShards([folder / "six.npy"])
        >>> sampler = paceline.loader.ShardSampler(rows, shuffle=False, rank=0, ranks=1)
        >>> state = sampler.state_dict(delivered=4)
        >>> sampler.load_state_dict(state)
        >>> list(sampler)
        [4, 5]
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
        rank, ranks = _resume.rank_of(rank, ranks)
        _resume.check("window", window, 1, 32)
        _resume.check("seed", seed, 0, 64)
        self._shards = shards
        flags = (SHUFFLE if shuffle else 0) | (DROP_LAST if drop_last else 0)
        self._order = Order(ctypes.sizeof(Order), flags, seed, 0, rank, ranks, window, 0)
        self._first = 0
        # Places of the epoch that its ranks divide: all, or what earlier ones have left.
        self._left: _resume.Ranges = self._whole()

    def _whole(self) -> _resume.Ranges:
        return [(0, len(self._shards))] if len(self._shards) else []

    @property
    def epoch(self) -> int:
        return int(self._order.epoch)

    def _in_epoch(self, epoch: int) -> ShardSampler:
        """Another one, whose next pass is what this one's would be after set_epoch."""
        twin = copy.copy(self)
        twin._order = Order.from_buffer_copy(self._order)
        twin.set_epoch(epoch)
        return twin

    def set_epoch(self, epoch: int) -> None:
        """Another epoch begins at its begin; the same one stays where it was told to go on."""
        _resume.check("epoch", epoch, 0, 64)
        if epoch != self._order.epoch:
            self._order.epoch, self._first, self._left = epoch, 0, self._whole()

    def _block(self, left: _resume.Ranges, ranks: int) -> tuple[int, int]:
        """How many samples each rank has, and how many there are."""
        total = sum(end - begin for begin, end in left)
        return (total // ranks if self._order.flags & DROP_LAST else -(-total // ranks)), total

    def __len__(self) -> int:
        return self._block(self._left, self._order.ranks)[0] - self._first

    def __iter__(self) -> Iterator[int]:
        # The pass keeps the settings of this moment, even if they change while it runs.
        order, left = Order.from_buffer_copy(self._order), self._left
        length, total = self._block(left, order.ranks)
        at, end = order.rank * length + self._first, (order.rank + 1) * length
        while at < end:
            place = at % total  # the last rank may begin again
            count = min(_CHUNK, end - at, total - place)
            for first, last in _resume.part(left, place, place + count):
                yield from self._shards._places(order, first, last - first)
            at += count

    def _identity(self) -> dict[str, Any]:
        """What a state fits."""
        order = self._order
        of_order = {name: int(getattr(order, name)) for name in ("flags", "seed", "window")}
        return {**of_order, "shards": self._shards.identity}

    def state_dict(self, delivered: int) -> dict[str, Any]:
        """Of this epoch, when the program has had `delivered` samples of the pass that runs, or has
        ended.
        """
        order = self._order
        place = (order.epoch, order.rank, order.ranks)
        state = _resume.state(
            self._identity(), place, self._first, delivered, (len(self), "samples")
        )
        return {**state, "left": [list(each) for each in self._left]}

    def load_state_dict(self, state: _resume.States) -> None:
        """The next pass begins where the state was taken. Of another number of ranks, it is one
        state, where all had as much, or the list of all ranks' states.
        """
        saved = _resume.read(state, self._identity(), ["left"])
        left = _resume.ranges_of(saved.state.get("left"), len(self._shards))
        length, total = self._block(left, len(saved.firsts))
        for rank, first in enumerate(saved.firsts):
            if first > length:
                raise ValueError(
                    f"the state's first is {first}: rank {rank} of {len(saved.firsts)} had {length}"
                    " samples"
                )
        if len(saved.firsts) == self._order.ranks:
            self._left, self._first = left, saved.of(self._order.rank)
        else:
            had = (
                (rank * length, rank * length + first) for rank, first in enumerate(saved.firsts)
            )
            taken = [(min(begin, total), min(end, total)) for begin, end in had]
            self._left, self._first = _resume.without(left, taken), 0
        self._order.epoch = saved.epoch
