# SPDX-License-Identifier: Apache-2.0
"""paceline.loader against torch.utils.data.DataLoader: the same samples, order and random state in
every case.
"""

from __future__ import annotations

import copy
import gc
import mmap
import os
import signal
import sys
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import loader_cases
import numpy as np
import pytest
import torch
from loader_cases import CASES, TORCH, difference
from torch.utils.data import Dataset

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(
    0,
    str(
        Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release"))
        / "runtime"
        / "python"
    ),
)
from paceline import loader  # noqa: E402 - where it lies is known only now
from paceline.loader import _batches, _exchange, _iterator, _patch, _prefetch, _report  # noqa: E402

torch.set_num_threads(1)


def observed(name: str, kind: Any) -> list[Any]:
    loader_cases.seed()
    loader_cases.CHANGED[0] = 1.0
    return CASES[name](kind)


@pytest.mark.parametrize("name", CASES)
def test_equal_to_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = 0
    make = _iterator.iterator

    def counted(wanted: Any) -> Any:
        nonlocal ours
        made = make(wanted)
        ours += made is not None
        assert made is not None or wanted.num_workers == 0
        return made

    monkeypatch.setattr(_iterator, "iterator", counted)
    expected = observed(name, TORCH)
    assert ours == 0
    assert difference(observed(name, loader.DataLoader), expected) == ""
    assert ours > 0, "torch was compared with itself"


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
    monkeypatch.setattr(loader_cases.Rows, "counts", False)
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
        loader_cases.seed()
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
        loader_cases.seed()
        made = kind(
            loader_cases.Rows(5), batch_size=2, shuffle=True, num_workers=2, persistent_workers=True
        )
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
            lambda rows: TORCH(loader_cases.Stream(), num_workers=1, persistent_workers=True),
            "an iterable dataset",
        ),
        (
            lambda rows: TORCH(Large(), num_workers=1, persistent_workers=True),
            "Large may do anything; pass prefetch_next_epoch=True",
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


class Large(Dataset):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        return torch.full((8192,), float(index)), index


def test_batches_lie_in_slabs_and_those_kept_stay_as_they_are() -> None:
    made = loader.DataLoader(Large(), batch_size=2, num_workers=2, persistent_workers=True)
    iterator = iter(made)
    kept = list(iterator)  # more than there are slots: the rest goes PyTorch's way
    assert 0 < iterator._exchange.in_slabs < 12
    assert all((batch[0] == batch[1].float()[:, None]).all() for batch in kept)
    before = [batch[0].clone() for batch in kept]
    del kept[4:]
    for batch in made:
        assert (batch[0] == batch[1].float()[:, None]).all()
    assert all(torch.equal(batch[0], old) for batch, old in zip(kept, before))


def test_labels_that_are_kept_keep_no_slot() -> None:
    made = loader.DataLoader(Large(), batch_size=2, num_workers=2)
    iterator = iter(made)
    labels = [batch[1] for batch in iterator]
    assert _report.account_of(made).in_slabs == 12 and torch.cat(labels).tolist() == list(range(24))
    assert not iterator._exchange.slots._lent


def test_a_forked_child_keeps_the_batch_it_saw() -> None:
    made = loader.DataLoader(Large(), batch_size=2, num_workers=1, persistent_workers=True)
    iterator = iter(made)
    batch = next(iterator)[0]
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready[1], b"r")
        os.read(go[0], 1)
        os._exit(0 if (batch[0] == 0).all() and (batch[1] == 1).all() else 1)
    os.read(ready[0], 1)
    del batch
    for _ in range(3):
        assert sum(1 for _ in iter(made)) == 12
    os.write(go[1], b"g")
    assert os.waitpid(child, 0)[1] == 0
    slots = made._iterator._exchange.slots
    assert slots._waiting, "the child's slot was not given up before it ended"
    list(made)
    assert not slots._waiting


def test_slots_are_taken_by_the_thread_that_makes_the_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Told:
        asked = 0

        def storage(self, size: int) -> Any:
            self.asked += 1
            return torch.UntypedStorage(size)

    monkeypatch.setattr(
        torch.UntypedStorage, "_new_shared", torch.UntypedStorage._new_shared
    )  # is put back
    told = Told()
    _batches.collate_into(told)  # type: ignore[arg-type]
    assert not torch.UntypedStorage._new_shared(2 * _batches.SMALL).is_shared() and told.asked == 1
    with ThreadPoolExecutor(1) as pool:
        assert (
            pool.submit(torch.UntypedStorage._new_shared, 2 * _batches.SMALL).result().is_shared()
        )
    assert told.asked == 1


def test_a_killed_worker_is_named() -> None:
    class Kills(Large):
        def __getitem__(self, index: int) -> Any:
            if index == 10:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__getitem__(index)

    iterator = iter(loader.DataLoader(Kills(), batch_size=2, num_workers=2))
    pids = [worker.pid for worker in iterator._workers]
    with pytest.raises(RuntimeError, match="|".join(f"pid.* {pid}" for pid in pids)):
        list(iterator)


def test_a_batch_that_cannot_be_sent_is_an_error() -> None:
    class Unsendable(Large):
        def __getitem__(self, index: int) -> Any:
            return lambda: index

    with pytest.raises(Exception, match="sending a batch"):
        list(loader.DataLoader(Unsendable(), batch_size=None, num_workers=1))


def test_without_room_in_shared_memory_batches_pass_through_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_batches, "shared_memory_left", lambda: 0)
    made = loader.DataLoader(Large(), batch_size=2, num_workers=2)
    kept = list(made)
    assert _report.account_of(made).in_messages > 0
    assert all(
        (batch[0] == batch[1].float()[:, None]).all() and not batch[0].is_shared() for batch in kept
    )


def test_workers_end_by_themselves_though_nobody_reads_their_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_batches, "shared_memory_left", lambda: 0)
    monkeypatch.setattr(
        _exchange, "SLOT_BYTES", 4096
    )  # all goes through messages, and fills the streams
    iterator = iter(loader.DataLoader(Large(), batch_size=12, num_workers=2))
    workers = iterator._workers
    next(iterator)
    del iterator
    assert [worker.exitcode for worker in workers] == [0, 0]  # not terminated


def test_a_loader_that_is_there_already() -> None:
    made = loader.accelerate(TORCH(Large(), batch_size=2, num_workers=1))
    again = copy.copy(made)
    for one in (made, again):
        assert isinstance(iter(one), _iterator.Iterator) and type(one) is TORCH
    assert not isinstance(iter(TORCH(Large(), num_workers=1)), _iterator.Iterator)

    class Own(TORCH):
        def _get_iterator(self) -> Any:
            return iter("ab")

    assert list(loader.accelerate(Own(Large(), num_workers=1))) == ["a", "b"]


def test_a_class_that_cannot_be_hashed_is_accelerated() -> None:
    class Unhashable(loader.DataLoader):
        def __eq__(self, other: object) -> bool:
            return self is other

    assert sum(1 for _ in Unhashable(Large(), batch_size=4, num_workers=1)) == 6


@pytest.mark.parametrize(
    "options,why",
    [
        ({"num_workers": 0}, "no workers"),
        ({"num_workers": 1, "multiprocessing_context": "spawn"}, "start by spawn"),
        ({"num_workers": 1, "prefetch_factor": 63}, "prefetch_factor=63"),
    ],
)
def test_what_is_left_to_torch(options: dict[str, Any], why: str) -> None:
    made = loader.DataLoader(Large(), **options)
    assert _iterator.iterator(made) is None
    assert why in _report.account_of(made).line()


def test_the_switch_that_stops_all_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_DISABLE", "1")
    made = loader.DataLoader(Large(), batch_size=4, num_workers=1)
    assert sum(1 for _ in made) == 6 and "PACELINE_DISABLE" in _report.account_of(made).line()


@pytest.mark.parametrize(
    "told,why",
    [
        ("on", "neither Auto nor Disabled"),
        ("Disabled", "is Disabled"),
        ("", "is not set"),
        ("Auto", ""),
    ],
)
def test_what_a_job_may_say(
    told: str, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PACELINE_LOADER", told)
    found = _patch.wanted()
    assert why in found and bool(why) == bool(found)
    said = (
        "paceline: PACELINE_LOADER is 'on': it must be Auto or Disabled; PyTorch's loaders are left"
        " as they are\n"
    )
    assert capsys.readouterr().err == (said if told == "on" else "")


def test_a_small_shared_memory_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    small = os.statvfs_result((4096, 4096, 16384, 16384, 16384, 0, 0, 0, 0, 255))
    monkeypatch.setattr(_report.os, "statvfs", lambda path: small)
    assert "/dev/shm has 64 MiB" in _report._advice() and "medium: Memory" in _report._advice()


def test_nothing_is_left_behind() -> None:
    for _ in range(2):
        iterator = iter(loader.DataLoader(Large(), batch_size=2, num_workers=2))
        workers, region = iterator._workers, weakref.ref(iterator._exchange.region)
        batch = next(iterator)[0]
        del iterator
        gc.collect()
        assert not any(worker.is_alive() for worker in workers)
        assert region() is not None and (batch[1] == 1).all(), "memory lives as long as its batches"
        del batch
        gc.collect()
        assert region() is None
