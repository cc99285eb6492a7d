# SPDX-License-Identifier: Apache-2.0
"""Epochs that are prefetched: the same samples, order and random state as without, and which loaders
get them.
"""

from __future__ import annotations

import gc
import mmap
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loader_cases import TORCH, Rows, Stream, difference, observed
from paceline import loader
from paceline.loader import _prefetch, _report
from parity import seed
from torch.utils.data import Dataset


class Prefetching(loader.DataLoader):
    """Of programs that say that their samples depend on nothing that ends with an epoch."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, prefetch_next_epoch=True, **options)


# Cases with persistent workers, and how many epochs were prefetched, and discarded: it depends
# on nothing but random numbers.
BEGUN = {
    "shuffled": (2, 0),
    "sequential_more_workers_than_batches": (2, 0),
    "drawn_with_replacement": (4, 0),
    "other_samplers": (4, 2),
    "distributed_sampler": (3, 1),
    "samplers_of_the_program": (0, 0),
    "iterable": (0, 0),
    "left_early": (2, 0),
    "two_at_once": (2, 0),
    "validation_between": (2, 2),
    "dropout_between": (0, 2),
    "a_dataset_changed_between": (9, 0),
    "exceptions": (2, 0),
    "cached_batches": (2, 0),
}


@pytest.mark.parametrize("name", BEGUN)
def test_equal_to_torch_with_epochs_prefetched(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rows, "counts", False)
    _report._all.clear()
    _report._images.clear()
    expected = observed(name, TORCH)
    assert difference(observed(name, Prefetching), expected) == ""
    told = _report.seen()
    assert (
        sum(one["prefetched_epochs"] for one in told),
        sum(one["discarded_epochs"] for one in told),
    ) == BEGUN[name]


class Counts(Dataset):
    """Tells how many of its samples have been begun."""

    def __init__(self) -> None:
        self.begun = torch.multiprocessing.get_context("fork").Value("i", 0)

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        with self.begun.get_lock():
            self.begun.value += 1
        return torch.full((8192,), float(index)), torch.rand(1)

    def wait_for(self, number: int) -> None:
        until = time.monotonic() + 60
        while self.begun.value < number:
            assert time.monotonic() < until, f"{self.begun.value} of {number} samples were begun"
            time.sleep(0.001)


def test_the_next_epoch_is_there_before_it_is_asked_for() -> None:
    for shuffle in (False, True):
        rows = Counts()
        made = Prefetching(
            rows, batch_size=2, shuffle=shuffle, num_workers=2, persistent_workers=True
        )
        for epoch in range(3):
            assert sum(1 for _ in made) == 6
            rows.wait_for(12 * (epoch + 1) + 8)  # 2 batches of 2 for each worker
        assert rows.begun.value == 44, "nothing is made twice"
        assert "2 epochs prefetched, 0 discarded" in _report.account_of(made).line()


def test_what_was_made_in_vain_is_forgotten_by_the_workers() -> None:
    """Misses with the samples of the dropped generation begun, and with none of them begun."""
    seen: dict[Any, list[Any]] = {}
    for kind in (TORCH, Prefetching):
        seed()
        rows = Counts()
        made = kind(rows, batch_size=2, shuffle=True, num_workers=2, persistent_workers=True)
        for epoch in range(6):
            seen.setdefault(kind, []).extend(made)
            if epoch % 2 == 0:
                if kind is Prefetching and epoch == 0:
                    rows.wait_for(20)
                torch.rand(1)  # another order
    assert difference(seen[Prefetching], seen[TORCH]) == ""
    assert "2 epochs prefetched, 3 discarded" in _report.account_of(made).line()


@pytest.mark.usefixtures("patience")
def test_an_epoch_that_is_never_asked_for_leaves_nothing_behind() -> None:
    rows = Counts()
    made = Prefetching(rows, batch_size=2, num_workers=2, persistent_workers=True)
    assert sum(1 for _ in made) == 6
    rows.wait_for(20)
    workers, region = made._iterator._workers, weakref.ref(made._iterator._exchange.region)
    made._iterator = None
    gc.collect()
    assert [worker.exitcode for worker in workers] == [0, 0] and region() is None


def test_passes_that_end_before_they_have_begun() -> None:
    """All of an epoch is sent at its beginning, and so is the next one's: guesses that nobody
    waited for, one upon the other.
    """
    seen: dict[Any, list[Any]] = {}
    for kind in (TORCH, Prefetching):
        seed()
        made = kind(Rows(5), batch_size=2, shuffle=True, num_workers=2, persistent_workers=True)
        made.dataset.counts = False
        for number in range(8):
            iterator = iter(made)
            seen.setdefault(kind, []).append(next(iterator) if number in (1, 4) else None)
            if number in (0, 2, 3):
                torch.rand(1)
        seen[kind] += list(made)
    assert difference(seen[Prefetching], seen[TORCH]) == ""


class Sampled(torch.utils.data.SequentialSampler):
    pass


class Unknown(Dataset):
    """Nothing is known of its samples."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        return torch.full((8192,), float(index)), index


@pytest.mark.parametrize(
    "make,why",
    [
        (lambda rows: TORCH(rows, num_workers=1), "workers end with each epoch"),
        (
            lambda rows: loader.DataLoader(
                rows, num_workers=1, persistent_workers=True, prefetch_next_epoch=False
            ),
            "prefetch_next_epoch=False",
        ),
        (lambda rows: TORCH(rows, num_workers=1, persistent_workers=True), ""),
        (
            lambda rows: TORCH(
                torch.utils.data.Subset(rows, [1, 2]), num_workers=1, persistent_workers=True
            ),
            "",
        ),
        (lambda rows: TORCH(rows + rows, num_workers=1, persistent_workers=True), ""),
        (
            lambda rows: TORCH(Stream(), num_workers=1, persistent_workers=True),
            "an iterable dataset",
        ),
        (
            lambda rows: TORCH(Unknown(), num_workers=1, persistent_workers=True),
            "Unknown may do anything; pass prefetch_next_epoch=True",
        ),
        (
            lambda rows: TORCH(rows, num_workers=1, persistent_workers=True, worker_init_fn=print),
            "worker_init_fn may do",
        ),
        (
            lambda rows: TORCH(rows, num_workers=1, persistent_workers=True, collate_fn=list),
            "collate_fn is the program's own",
        ),
        (
            lambda rows: Prefetching(
                rows, num_workers=1, persistent_workers=True, sampler=Sampled(rows)
            ),
            "a sampler of class Sampled",
        ),
    ],
)
def test_what_is_prefetched(make: Any, why: str) -> None:
    found = _prefetch.why_not(make(torch.utils.data.TensorDataset(torch.ones(4, 3))))
    assert why in found and bool(why) == bool(found)


def test_memory_that_others_may_write_to_is_not_private(tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(bytes(1 << 20))
    mapped = torch.from_numpy(np.memmap(tmp_path / "rows", dtype=np.float32, mode="r+"))
    copied = torch.from_numpy(np.memmap(tmp_path / "rows", dtype=np.float32, mode="c"))
    anonymous = torch.frombuffer(mmap.mmap(-1, 1 << 20), dtype=torch.float32)
    for tensor in (mapped, copied, anonymous, torch.ones(3).share_memory_()):
        made = TORCH(torch.utils.data.TensorDataset(tensor), num_workers=1, persistent_workers=True)
        assert "a tensor of the dataset" in _prefetch.why_not(made)
