# SPDX-License-Identifier: Apache-2.0
"""Loaders with pin_memory=True against PyTorch's own and its pin thread, on a fake accelerator: the
same batches, in pinned memory.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import weakref
from collections import namedtuple
from typing import Any

import pytest
import torch
from fake_accelerator import FakeAccelerator
from loader_cases import CASES, LARGE, TORCH, Rows, difference, observed
from paceline import loader
from paceline.loader import _iterator, _pinned, _report
from torch.utils.data import Dataset


@pytest.fixture(autouse=True)
def accelerator(monkeypatch: pytest.MonkeyPatch) -> FakeAccelerator:
    return FakeAccelerator(monkeypatch)


class Torchs(TORCH):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "pin_memory": True})


class Ours(loader.DataLoader):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "pin_memory": True})


class OursAhead(loader.DataLoader):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "pin_memory": True, "prefetch_next_epoch": True})


# A batch of it is one that PyTorch cannot pin: test_batches_of_every_shape has such.
@pytest.mark.parametrize("name", [name for name in CASES if name != "batches_of_other_makes"])
def test_equal_to_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    make = _iterator.iterator

    def noted(wanted: Any) -> Any:
        found = make(wanted)
        assert found is not None or wanted.num_workers == 0
        made.append(weakref.ref(found) if found is not None else None)
        assert found is None or not hasattr(found, "_pin_memory_thread")
        return found

    monkeypatch.setattr(_iterator, "iterator", noted)
    monkeypatch.setattr(Rows, "counts", False)
    expected = observed(name, Torchs)
    assert not made
    for kind in (Ours, OursAhead):
        assert difference(observed(name, kind), expected) == ""
    assert any(made), "torch was compared with itself"


Pair = namedtuple("Pair", "left right")


class Known:
    """A class of the program's that pins itself, and looks at what it has pinned."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows, self.sum = rows, torch.zeros(1)

    def pin_memory(self) -> Any:
        self.rows = self.rows.pin_memory()
        self.sum = self.rows.sum()
        return self


class Unknown:
    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows


class Unpinnable(Known):
    def pin_memory(self) -> Any:
        raise ValueError("this one stays")


class Shapes(Dataset):
    """Batches as a program may make them."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        rows = torch.arange(2 * LARGE, dtype=torch.float32).view(2, LARGE) + index
        picture = torch.full((2, 3, 64, 64), float(index))
        return [
            (rows, [rows, rows]),
            {"a": rows, "b": rows[1], "text": "as it is", "bytes": b"too"},
            Pair(rows.t(), rows[:, ::2]),
            picture.to(memory_format=torch.channels_last),
            rows.to(torch.float16),
            torch.zeros(3, 0),
            rows[0].expand(4, LARGE),
            (rows > 4).to(torch.bool),
            Known(rows),
            Unknown(rows),
        ][index]


def contents(iterator: Any) -> Any:
    while True:
        try:
            batch = next(iterator)
            yield vars(batch) if isinstance(batch, (Known, Unknown)) else batch
        except StopIteration:
            return
        except RuntimeError as error:
            yield (
                type(error),
                str(error).splitlines()[0],
                "refers to a single memory location" in str(error),
            )


def test_batches_of_every_shape() -> None:
    seen = {}
    for kind in (Torchs, Ours):
        seen[kind] = list(contents(iter(kind(Shapes(), batch_size=None, num_workers=1))))
    assert difference(seen[Ours], seen[Torchs]) == ""
    assert seen[Ours][6] == (
        RuntimeError,
        "Caught RuntimeError in pin memory thread for device 0.",
        True,
    )
    rows, others = seen[Ours][0]
    others[0][0] = -1
    assert rows[0, 0] == 0 and others[1][0, 0] == 0, "PyTorch pins each of them by itself"


class Large(Dataset):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        return torch.full((1 << 16,), float(index)), index


def test_large_tensors_are_copied_by_the_library_alone(accelerator: FakeAccelerator) -> None:
    made = Ours(Large(), batch_size=2, num_workers=2)
    threads = threading.active_count()
    iterator = iter(made)
    for number, (rows, numbers) in enumerate(iterator):
        assert threading.active_count() == threads, "there is no thread of Python's"
        assert (
            rows.is_pinned()
            and numbers.is_pinned()
            and numbers.tolist() == [2 * number, 2 * number + 1]
        )
        assert (rows == numbers.float()[:, None]).all()
        # What has been delivered lies in memory of its own: its slot has gone back.
        assert len(iterator._exchange.slots._lent) == len(iterator._exchange.landing)
    assert accelerator.copies_of_torch == 12, "labels, which come in messages"
    told = _report.account_of(made).told()
    assert (
        told["pinned"] == 12 and "12 copied into pinned memory" in _report.account_of(made).line()
    )


def test_a_batch_is_handed_out_when_all_of_it_is_there() -> None:
    iterator = iter(Ours(Large(), batch_size=2, num_workers=1))
    before = torch.ones(1 << 22)
    for number in range(3):
        for _ in range(8):
            iterator._exchange.pinning.copy(before)  # what the batch's copies have to wait for
        rows = next(iterator)[0]
        assert rows[0, 0] == rows[0, -1] == 2 * number and rows[1, -1] == 2 * number + 1


def test_what_cannot_be_pinned_fails_as_it_does_in_torch() -> None:
    class Some(Large):
        def __getitem__(self, index: int) -> Any:
            rows = super().__getitem__(index)[0]
            return Unpinnable(rows) if index == 1 else rows

    said = []
    for kind in (Torchs, Ours):
        iterator = iter(kind(Some(), batch_size=None, num_workers=1))
        next(iterator)
        with pytest.raises(ValueError, match="this one stays") as error:
            next(iterator)
        said.append(str(error.value).splitlines()[0])
        assert (next(iterator) == 2).all()
    assert said[0] == said[1] == "Caught ValueError in pin memory thread for device 0."


def test_memory_of_a_batch_that_fails_in_the_middle_stays_until_it_is_asked_for() -> None:
    pinning = _pinned.Pinning()
    slot = (ctypes.c_ubyte * (1 << 20))()
    rows = torch.frombuffer(slot, dtype=torch.float32)
    landing = pinning.begin((0, [rows, rows[:1].expand(8)]), slot)
    targets = [weakref.ref(target) for target in landing._memory[1]]
    gc.collect()
    assert len(targets) == 1 and targets[0]() is not None, "its copy may not be done yet"
    with pytest.raises(RuntimeError, match="in pin memory thread"):
        landing.arrived()[1].reraise()
    assert targets[0]() is None


@pytest.mark.usefixtures("patience")
def test_a_pass_that_is_left_early_leaves_nothing_behind() -> None:
    made = Ours(Large(), batch_size=2, num_workers=2, persistent_workers=True)
    for _ in range(4):
        for number, _ in enumerate(made):
            if number == 1:
                break
    assert [numbers.tolist()[0] for _, numbers in made] == list(range(0, 24, 2))
    workers, region = made._iterator._workers, weakref.ref(made._iterator._exchange.region)
    pinning = weakref.ref(made._iterator._exchange.pinning)
    made._iterator = None
    gc.collect()
    assert (
        [worker.exitcode for worker in workers] == [0, 0] and region() is None and pinning() is None
    )


def test_a_forked_child_ends_though_batches_are_on_their_way() -> None:
    iterator = iter(Ours(Large(), batch_size=2, num_workers=2))
    next(iterator)
    child = os.fork()
    if child == 0:
        try:
            iterator._exchange.pinning.wait(1 << 40)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(iterator)) == 11


@pytest.mark.parametrize(
    "options,kind,why",
    [
        ({}, "mps", "pin_memory with an accelerator of kind mps"),
        ({"pin_memory_device": "cuda"}, "cuda", "pin_memory_device='cuda'"),
        ({}, "cuda", ""),
        ({}, "", ""),
    ],
)
def test_what_is_left_to_torch(
    options: dict[str, str], kind: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pinned, "accelerator", lambda: kind)
    made = Ours(Large(), num_workers=1, **options)
    assert _iterator.why_not(made) == why and _pinned.wanted(made) == bool(kind)


def test_a_program_that_ends_in_the_middle_ends_well() -> None:
    """Its batches are in the middle of being copied to memory that the device's library is about to
    give back.
    """
    pinning = _pinned.Pinning()
    source = torch.ones(1 << 24)
    target = pinning.copy(source)
    _pinned._finish()
    assert torch.equal(target, source)
