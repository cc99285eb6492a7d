# SPDX-License-Identifier: Apache-2.0
"""What the parity cases share: datasets that tell their random state, and an exact comparison.

A case takes a class of loaders and returns every batch and random state that it saw. `CASES` holds
the cases that were imported.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

Case = Callable[[Any], list[Any]]


CASES: dict[str, Case] = {}


NEW = int(torch.__version__.split(".")[0]) >= 2


LARGE = 5000  # floats: a tensor of them goes into a slab


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def seed() -> None:
    torch.manual_seed(5)
    random.seed(6)
    np.random.seed(7)


def state() -> list[Any]:
    return [torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()]


class Rows(Dataset):
    """Each sample tells its index, and what the worker's random numbers are at that point."""

    counts = True  # how many samples it has made, which is then a part of each

    def __init__(self, size: int = 26, large: bool = False) -> None:
        self.size, self.large = size, large
        self.calls = 0
        self.scale = 1.0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        self.calls += self.counts
        info = get_worker_info()
        row = torch.full((LARGE if self.large else 3,), float(index) * self.scale)
        luck = torch.rand(2), random.random(), float(np.random.rand())
        return (
            row,
            int(index),
            luck,
            self.calls,
            (info.id, info.num_workers, info.seed),
            torch.initial_seed(),
        )


class Stream(IterableDataset):
    """Shards itself over the workers, unevenly, and takes its random numbers from its worker."""

    def __init__(self, size: int = 23, length: int | None = None, large: bool = False) -> None:
        self.size, self.length, self.large = size, length, large
        self.passes = 0

    def __len__(self) -> int:
        if self.length is None:
            raise TypeError
        return self.length

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        info = get_worker_info()
        for value in range(info.id, self.size - 4 * info.id, info.num_workers):
            row = torch.full((LARGE,), float(value)) if self.large else torch.tensor(value)
            yield row, torch.rand(1), random.random(), self.passes


def passes(loader: Any, epochs: int = 3, between: Callable[[int], None] | None = None) -> list[Any]:
    seen: list[Any] = []
    for epoch in range(epochs):
        if between is not None:
            between(epoch)
        for number, batch in enumerate(loader):
            seen.append(batch)
            if number == 1:
                seen.append(torch.rand(1))  # the program draws as well
        seen.append(state())
    return seen


def both(kind: Any, dataset: Callable[[], Any], epochs: int = 3, **options: Any) -> list[Any]:
    """With workers of one epoch, and with persistent ones."""
    seen: list[Any] = []
    for persistent in (False, True):
        seed()
        # Each pass without persistent workers is two forks of all of PyTorch.
        loader = kind(dataset(), num_workers=2, persistent_workers=persistent, **options)
        seen += passes(loader, epochs if persistent else epochs - 1)
    return seen


def alike(left: Any, right: Any) -> bool:
    return not difference(left, right)


def difference(left: Any, right: Any) -> str:
    """Empty where both are equal to the bit and laid out alike; else where they are not."""
    if type(left) is not type(right):
        return f": {type(left)} and {type(right)}"
    if isinstance(left, torch.Tensor):
        for of in ("dtype", "shape", "requires_grad", "layout", "_version"):
            if getattr(left, of) != getattr(right, of):
                return f".{of}: {getattr(left, of)} and {getattr(right, of)}"
        if left.is_pinned() != right.is_pinned():
            return f".is_pinned(): {left.is_pinned()} and {right.is_pinned()}"
        if left.layout is not torch.strided:
            return difference(left.to_dense(), right.to_dense())
        if left.stride() != right.stride() or left.storage_offset() != right.storage_offset():
            return f".stride(): {left.stride()} and {right.stride()}"
        return "" if torch.equal(left, right) else ": other values"
    if isinstance(left, np.ndarray):
        same = (
            left.dtype == right.dtype and left.shape == right.shape and bool((left == right).all())
        )
        return "" if same else ": other values"
    if isinstance(left, dict):
        left, right = [*left, *left.values()], [*right, *right.values()]
    if isinstance(left, (list, tuple)):
        if len(left) != len(right):
            return f": {len(left)} and {len(right)} elements"
        found = ((number, difference(a, b)) for number, (a, b) in enumerate(zip(left, right)))
        return next((f"[{number}]{what}" for number, what in found if what), "")
    return "" if left == right else f": {left!r} and {right!r}"


TORCH = DataLoader
