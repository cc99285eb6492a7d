# SPDX-License-Identifier: Apache-2.0
"""The order in which each rank sees the samples of shards, and how the same or another number of
ranks resumes an epoch.
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
    """Yields one rank's samples of an epoch.

    It permutes the shards, then the samples within each `window` of neighbouring shards. The ranks
    divide that sequence into blocks, so each rank reads its own shards. The order depends only on
    `seed`, the epoch and the sizes of the shards, and on no random state.

    An epoch can be resumed at any sample. A loader fetches ahead, so the program says how many
    samples it has had. Another number of ranks may resume: they divide the samples that were not
    delivered, and none comes twice. Ranks that train in step have had the same number, so the state
    of any one is enough. Otherwise give the list of the states of all ranks.

    Args:
        shards: `TarShards` or `RecordShards`.
        shuffle: False keeps the order of the files.
        seed: samplers with the same seed have the same order.
        rank: this rank's number. None: torch.distributed's, or 0 if that is not initialised.
        ranks: number of ranks. None: torch.distributed's, or 1.
        window: number of neighbouring shards that are shuffled together.
        drop_last: leaves out the samples that do not divide evenly among the ranks. Otherwise the
            last rank repeats samples from the begin of the epoch.

    Raises:
        ValueError: an argument is out of range; the text names it.

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
        # The places of the epoch that the ranks divide: all, or those that earlier ranks left over.
        self._left: _resume.Ranges = self._whole()

    def _whole(self) -> _resume.Ranges:
        return [(0, len(self._shards))] if len(self._shards) else []

    @property
    def epoch(self) -> int:
        """The epoch of the next pass."""
        return int(self._order.epoch)

    def _in_epoch(self, epoch: int) -> ShardSampler:
        """Returns a copy whose next pass equals this sampler's after set_epoch(epoch)."""
        twin = copy.copy(self)
        twin._order = Order.from_buffer_copy(self._order)
        twin.set_epoch(epoch)
        return twin

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass. A resumed epoch stays resumed if it is set again."""
        _resume.check("epoch", epoch, 0, 64)
        if epoch != self._order.epoch:
            self._order.epoch, self._first, self._left = epoch, 0, self._whole()

    def _block(self, left: _resume.Ranges, ranks: int) -> tuple[int, int]:
        """Returns the number of samples of each rank, and of all ranks together."""
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
            place = at % total  # without drop_last, the last rank begins again at 0
            count = min(_CHUNK, end - at, total - place)
            for first, last in _resume.part(left, place, place + count):
                yield from self._shards._places(order, first, last - first)
            at += count

    def _identity(self) -> dict[str, Any]:
        """Returns the values that a state must have to be loaded here."""
        order = self._order
        of_order = {name: int(getattr(order, name)) for name in ("flags", "seed", "window")}
        return {**of_order, "shards": self._shards.identity}

    def state_dict(self, delivered: int) -> dict[str, Any]:
        """Returns the state of this epoch, as plain Python values.

        Args:
            delivered: samples that the program has had in the running or last pass.

        Raises:
            ValueError: the pass has fewer samples than `delivered`.
        """
        order = self._order
        place = (order.epoch, order.rank, order.ranks)
        state = _resume.state(
            self._identity(), place, self._first, delivered, (len(self), "samples")
        )
        return {**state, "left": [list(each) for each in self._left]}

    def load_state_dict(self, state: _resume.States) -> None:
        """Lets the next pass begin where the state was taken, also with another number of ranks.

        Args:
            state: the state of any rank if all ranks had equally many samples, else the list of
                the states of all ranks.

        Raises:
            ValueError: a state is of other shards, settings or passes; the text names the
                difference.
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
