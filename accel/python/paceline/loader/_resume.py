# SPDX-License-Identifier: Apache-2.0
"""The common part of this package's samplers: which rank they serve, and how a state of one number
of ranks is read by another.

A rank's state names the rank and everything that determines its order. `first` is the number of
samples or batches that the rank has had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

import torch.distributed

State = Mapping[str, Any]
States = Union[State, Sequence[State]]
Ranges = list[tuple[int, int]]  # ranges of places in a sequence, ascending and disjoint


def check(name: str, value: int, least: int, bits: int) -> None:
    if not isinstance(value, int) or not least <= value < 1 << bits:
        raise ValueError(
            f"{name} is {value!r}: it must be a whole number of at least {least} and below"
            f" 2**{bits}"
        )


def rank_of(rank: int | None, ranks: int | None) -> tuple[int, int]:
    """Returns the rank and the number of ranks: as given, else torch.distributed's, else 0 of 1."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if ranks is None:
        ranks = torch.distributed.get_world_size() if distributed else 1
    if rank is None:
        rank = torch.distributed.get_rank() if distributed else 0
    check("ranks", ranks, 1, 32)
    check("rank", rank, 0, 32)
    if rank >= ranks:
        raise ValueError(f"rank is {rank}: it must be below ranks, which is {ranks}")
    return rank, ranks


@dataclass
class Saved:
    """The progress of all ranks, as `read` found it in their states."""

    epoch: int
    firsts: list[int]  # by rank
    state: State  # one of the states, for their common values

    def of(self, rank: int) -> int:
        return self.firsts[rank]


def state(
    own: State, place: tuple[int, int, int], first: int, delivered: int, left: tuple[int, str]
) -> dict[str, Any]:
    """Returns the state of a rank that has had `delivered` samples or batches of a pass.

    `place` is the epoch, the rank and the number of ranks. The pass began at `first`. `left` is how
    many the pass has from there, and whether they are samples or batches.
    """
    count, what = left
    if not 0 <= delivered <= count:
        raise ValueError(f"delivered is {delivered}: this pass has {count} {what}")
    return {
        **own,
        **dict(zip(("epoch", "rank", "ranks"), map(int, place))),
        "first": first + delivered,
    }


def read(states: States, own: State, common: Sequence[str] = ()) -> Saved:
    """Reads the state of one rank, or the states of all ranks.

    One state stands for all ranks, because ranks that train in step have had equally many. A state
    must have the values of `own`. Several states must also agree on the names in `common`.
    """
    alone = isinstance(states, Mapping)
    given: list[State] = [states] if isinstance(states, Mapping) else list(states)
    if not given:
        raise ValueError(
            "the states are an empty list: give that of every rank, or one where all have had as"
            " much"
        )
    for state in given:
        other = {
            name: (state.get(name), value)
            for name, value in own.items()
            if state.get(name) != value
        }
        if other:
            said = ", ".join(f"{name} was {was} and is {now}" for name, (was, now) in other.items())
            raise ValueError(
                f"the state is of another order: {said}; go on with what it was saved with"
            )
        for name, least in (("epoch", 0), ("first", 0), ("rank", 0), ("ranks", 1)):
            check(f"the state's {name}", state.get(name), least, 64)  # type: ignore[arg-type]
    state, ranks = given[0], int(given[0]["ranks"])
    for name in () if alone else ("epoch", "ranks", *common):
        found = {repr(each.get(name)) for each in given}
        if len(found) > 1:
            raise ValueError(
                f"the states are of different passes: {name} is {' and '.join(sorted(found))}"
            )
    if alone:
        return Saved(int(state["epoch"]), [int(state["first"])] * ranks, state)
    by_rank = {int(each["rank"]): int(each["first"]) for each in given}
    wanting = sorted(set(range(ranks)) - set(by_rank))
    if wanting or len(given) != ranks:
        what = f"that of rank {wanting[0]} is missing" if wanting else "one comes twice"
        raise ValueError(
            f"the states are {len(given)} of {ranks} ranks, and {what}: give that of every rank"
            " once"
        )
    return Saved(int(state["epoch"]), [by_rank[rank] for rank in range(ranks)], state)


def part(ranges: Ranges, begin: int, end: int) -> Ranges:
    """Returns the part from place `begin` to `end`. Places are counted in order over all ranges."""
    found: Ranges = []
    at = 0
    for first, last in ranges:
        low, high = max(begin - at, 0), min(end - at, last - first)
        if low < high:
            found.append((first + low, first + high))
        at += last - first
    return found


def without(ranges: Ranges, taken: Ranges) -> Ranges:
    """The ranges without the taken places. Places are counted in order over all ranges."""
    rest: Ranges = []
    at = 0
    for begin, end in [*taken, (sum(last - first for first, last in ranges),) * 2]:
        for first, last in part(ranges, at, begin):
            if rest and rest[-1][1] == first:
                first = rest.pop()[0]
            rest.append((first, last))
        at = end
    return rest


def ranges_of(value: Any, total: int) -> Ranges:
    """Reads the ranges of a state and checks every value, since the state is not trusted."""
    before = 0
    found: Ranges = []
    pairs: Any = value if isinstance(value, (list, tuple)) else [None]
    for pair in pairs:
        good = (
            isinstance(pair, (list, tuple))
            and len(pair) == 2
            and all(isinstance(each, int) for each in pair)
        )
        if not good or not before <= pair[0] < pair[1] <= total:
            raise ValueError(
                f"the state's left has {pair!r}: it must be pairs of places, in order, below"
                f" {total}"
            )
        before = pair[1]
        found.append((pair[0], pair[1]))
    return found
