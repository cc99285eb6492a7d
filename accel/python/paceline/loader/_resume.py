# SPDX-License-Identifier: Apache-2.0
"""What the samplers of this package share: whose share of an epoch they give, and how the states of
one number of ranks are read by another. A rank's state names itself and all that its order follows
from; how far a rank is, is its `first`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

import torch.distributed

State = Mapping[str, Any]
States = Union[State, Sequence[State]]
Ranges = list[tuple[int, int]]  # of places in a sequence, in order and apart


def check(name: str, value: int, least: int, bits: int) -> None:
    if not isinstance(value, int) or not least <= value < 1 << bits:
        raise ValueError(
            f"{name} is {value!r}: it must be a whole number of at least {least} and below"
            f" 2**{bits}"
        )


def rank_of(rank: int | None, ranks: int | None) -> tuple[int, int]:
    """The given rank, else that of torch.distributed, else of a single process."""
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
    """How far each rank was."""

    epoch: int
    firsts: list[int]  # by rank
    state: State  # one of them, for what they have in common

    def of(self, rank: int) -> int:
        return self.firsts[rank]


def state(
    own: State, place: tuple[int, int, int], first: int, delivered: int, left: tuple[int, str]
) -> dict[str, Any]:
    """Of a rank in an epoch (`place`: epoch, rank, ranks) whose pass began at `first`, `left`
    samples or batches before its end.
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
    """One state stands for all ranks that were with it: those that train in step have all had as
    much. Else the states of all of them. `own` is what a state must have to fit, `common` what
    states must also share with each other.
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
    """What lies from place `begin` up to `end` of the ranges, one after the other."""
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
