# SPDX-License-Identifier: Apache-2.0
"""paceline.loader against torch.utils.data.DataLoader: the same samples, order and random state in
every case.
"""

from __future__ import annotations

import copy
import gc
import os
import signal
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from loader_cases import CASES, TORCH, difference, observed
from paceline import loader
from paceline.loader import _batches, _exchange, _iterator, _patch, _report
from torch.utils.data import Dataset


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


@pytest.mark.usefixtures("patience")
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


@pytest.mark.usefixtures("patience")
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
