# SPDX-License-Identifier: Apache-2.0
"""Parity cases of the order of samples: shuffling, samplers and iterable datasets."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from parity import Rows, Stream, both, case, passes, seed
from torch.utils.data import (
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)


@case
def shuffled(kind: Any) -> list[Any]:
    return both(kind, Rows, batch_size=4, shuffle=True)


@case
def shuffled_large_with_generator(kind: Any) -> list[Any]:
    return both(
        kind,
        lambda: Rows(large=True),
        batch_size=4,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(3),
    )


@case
def sequential_more_workers_than_batches(kind: Any) -> list[Any]:
    seed()
    return passes(
        kind(
            Rows(5, large=True),
            batch_size=3,
            num_workers=3,
            prefetch_factor=1,
            persistent_workers=True,
        )
    )


@case
def one_worker_prefetching_far(kind: Any) -> list[Any]:
    seed()
    return passes(kind(Rows(40), batch_size=2, shuffle=True, num_workers=1, prefetch_factor=7))


@case
def no_samples(kind: Any) -> list[Any]:
    return both(kind, lambda: Rows(0), batch_size=2)


@case
def drawn_with_replacement(kind: Any) -> list[Any]:
    seen: list[Any] = []
    for generator in (None, torch.Generator().manual_seed(1)):
        sampler = RandomSampler(Rows(70), replacement=True, num_samples=75, generator=generator)
        seen += both(kind, lambda: Rows(70), sampler=sampler, batch_size=5)
    return seen


@case
def other_samplers(kind: Any) -> list[Any]:
    subset = SubsetRandomSampler(range(3, 20, 2))
    weighted = WeightedRandomSampler(
        [0.1, 0.5, 0.4], 11, generator=torch.Generator().manual_seed(2)
    )
    more = RandomSampler(Rows(9), num_samples=20)
    return [both(kind, Rows, sampler=sampler, batch_size=3) for sampler in (subset, weighted, more)]


@case
def distributed_sampler(kind: Any) -> list[Any]:
    seen: list[Any] = []
    for persistent in (False, True):
        for told in (True, False):
            seed()
            sampler: Any = DistributedSampler(Rows(), num_replicas=2, rank=1, drop_last=told)
            loader = kind(
                Rows(), sampler=sampler, batch_size=3, num_workers=2, persistent_workers=persistent
            )
            seen += passes(loader, 3, sampler.set_epoch if told else None)
    return seen


class _Lucky:
    """A sampler of the program's own: draws from Python's generator, and yields tensors."""

    def __init__(self, batches: bool) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        for _ in range(7):
            numbers = torch.tensor([random.randrange(26) for _ in range(3)])
            yield numbers if self.batches else numbers[0]

    def __len__(self) -> int:
        return 7


@case
def samplers_of_the_program(kind: Any) -> list[Any]:
    return both(kind, Rows, batch_sampler=_Lucky(True)) + both(
        kind, Rows, sampler=_Lucky(False), batch_size=2
    )


@case
def batch_size_none(kind: Any) -> list[Any]:
    return both(kind, lambda: Rows(large=True), batch_size=None, shuffle=True)


@case
def iterable(kind: Any) -> list[Any]:
    seen = both(kind, Stream, batch_size=3)
    seen += both(kind, lambda: Stream(large=True), batch_size=4, drop_last=True)
    return seen + both(kind, Stream, batch_size=None)


@case
def iterable_longer_than_it_says(kind: Any) -> list[Any]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        loader = kind(Stream(length=6), batch_size=3, num_workers=2)
        seen = [len(loader), *passes(loader, 1)]
    return [*seen, sum("Length of IterableDataset" in str(warning.message) for warning in said)]


@case
def iterable_of_the_whole_on_every_worker(kind: Any) -> list[Any]:
    class Same(IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            return iter(range(get_worker_info().id + 3))

    return both(kind, Same, batch_size=2)
