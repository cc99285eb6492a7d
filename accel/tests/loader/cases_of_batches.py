# SPDX-License-Identifier: Apache-2.0
"""Parity cases of what a batch may hold, and of the memory that it lies in."""

from __future__ import annotations

from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch
from parity import LARGE, NEW, Rows, alike, both, case, seed
from torch.utils.data import Dataset, default_collate

Pair = namedtuple("Pair", "left right")


class Held:
    """A batch of the program's own class."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = torch.stack(rows)
        self.again = self.rows
        self.part = self.rows[1:]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and alike(vars(self), vars(other))


class Things(Dataset):
    """Samples with everything a default collate takes."""

    def __init__(self, width: int) -> None:
        self.width = width

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        row = torch.arange(self.width, dtype=torch.float32) + index
        return {
            "pair": Pair(row, [row.double(), (row.bool(), str(index))]),
            "numpy": row.numpy() * 2,
            "scalars": (index, index / 3, row[0], np.float64(index), np.bool_(index % 2)),
            "half": row.to(torch.bfloat16).view(-1, 2),
            "complex": torch.complex(row, -row),
            "empty": row[:0],
            "bytes": b"x" * index,
        }


@case
def nested_batches(kind: Any) -> list[Any]:
    return [both(kind, partial(Things, width), batch_size=3) for width in (4, 4000)]


def collate_all_kinds(rows: list[Any]) -> Any:
    row = torch.stack(rows)
    whole = torch.arange(40_000.0)
    array = np.arange(40_000)
    return {
        "held": Held(rows),
        "transposed": row.t(),
        "expanded": row[:1].expand(7, -1),
        "views": (whole[:10], whole[5:15]),
        "of one array": tuple(torch.from_numpy(array[:end]) for end in (30, 9000, 40_000)),
        "close": (whole[:30_000], whole[10_000:]),
        "twice": (row, row),
        "numpy": np.arange(60_000),
        "objects": np.array([None, "a"], dtype=object),
        "sparse": (
            row.to_sparse() if NEW else None
        ),  # PyTorch 1.13 cannot send it, and waits forever
        "leaf": torch.ones(3, requires_grad=True),
        "parameter": torch.nn.Parameter(row.clone()),
        "conjugated": torch.complex(row, row).conj(),
        "shared": torch.ones(LARGE).share_memory_(),
        "negative strides": np.arange(9)[::-1],
        "odd": torch.arange(LARGE, dtype=torch.int16)[3:].view(torch.uint8),
        "text": "ü" * 50_000,
        "nothing": None,
    }


@case
def batches_of_other_makes(kind: Any) -> list[Any]:
    rows = torch.arange(12 * 900.0).view(12, 900)
    seen = both(kind, lambda: rows, batch_size=4, collate_fn=collate_all_kinds)
    for batch in seen:
        if isinstance(batch, dict):  # what shares memory shares it still
            for name in ("views", "of one array", "close", "twice"):
                batch[name][0].add_(1)
            batch["held"].part.mul_(2)
    return seen


def collate_in_part(rows: list[Any]) -> Any:
    storage = rows[0].storage() if not NEW else rows[0]._typed_storage()
    made = [rows[0].new(storage._new_shared(count)) for count in (7, 3 * LARGE)]
    for out in made:
        out.resize_(len(out))
        out[:2] = rows[0][0] + 1
    return *made, torch.stack(rows), [torch.utils.data.default_collate(rows)]


@case
def memory_asked_for_as_torch_asks(kind: Any) -> list[Any]:
    """Collates of programs that were copied from PyTorch's, and write only part of what they have
    got, as it is zero.
    """

    return both(kind, lambda: torch.ones(24, LARGE), batch_size=3, collate_fn=collate_in_part)


class Ahead(Rows):
    def __init__(self) -> None:
        super().__init__(12)
        self.pool: Any = None
        self.next: Any = None

    def collated(self, index: int) -> Any:
        return torch.utils.data.default_collate(
            [torch.full((LARGE,), float(index + i)) for i in range(3)]
        )

    def __getitem__(self, index: int) -> Any:
        if self.pool is None:
            self.pool = ThreadPoolExecutor(1)
        ready = self.next.result() if self.next is not None else self.collated(-1)
        self.next = self.pool.submit(self.collated, index)
        self.next.exception()  # it is made while this batch is
        return ready


@case
def collated_in_threads(kind: Any) -> list[Any]:
    """A dataset that collates the next sample in a thread of the worker."""

    loader = kind(Ahead(), batch_size=None, num_workers=1, persistent_workers=True)
    return [batch.clone() for _ in range(3) for batch in loader]


class Cached(Rows):
    kept: dict[int, Any] = {}

    def __getitem__(self, index: Any) -> Any:
        if index not in self.kept:
            self.kept[index] = default_collate(
                [torch.full((LARGE,), float(index + i)) for i in range(3)]
            )
        return self.kept[index]


@case
def cached_batches(kind: Any) -> list[Any]:
    """A dataset that keeps what it has collated, and hands it out again."""
    seed()
    loader = kind(Cached(12), batch_size=None, num_workers=2, persistent_workers=True)
    # The copy is kept, so the memory of the batch goes back to the worker.
    return [batch.clone() for _ in range(3) for batch in loader]
