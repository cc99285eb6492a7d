# SPDX-License-Identifier: Apache-2.0
"""Loaders that have workers, but too few: how a pass is measured, and what the next one gets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from paceline import loader
from paceline._core import contract, machine
from paceline._core.machine import Machine
from paceline.loader import _report
from paceline.loader._workers import few
from paceline.loader._workers.plan import TRIED, Plan
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

GIB = 1 << 30
AHEAD = 2


class Rows(Dataset):
    """Each sample tells of how many workers one made it."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        return index, info.num_workers if info else 0


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter(range(3))


@pytest.fixture(autouse=True)
def auto(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(contract.LOADER_WORKERS, "Auto")
    monkeypatch.setenv(contract.NUMERICS, "Reordered")


class Times:
    """Steps on a machine of four processors, by the test's clocks."""

    def __init__(self, had: int) -> None:
        self.now = self.here = self.there = 0.0
        self.plan = Plan(
            had,
            clock=lambda: self.now,
            processor=lambda: self.here,
            delayed=lambda: 0.0,
            look=lambda: Machine(4, 8 * GIB, GIB // 4),
            used=lambda pids: self.there,
        )

    def run(self, waited: float, rest: float, there: float, batches: int) -> int:
        """Runs a pass, and returns how many batches were looked at."""
        meter = few.Meter(self.plan, AHEAD)
        for number in range(batches):
            self.now += waited + rest
            self.here += rest
            self.there += there
            if not meter.handed(waited, [SimpleNamespace(pid=1)], range(1000)):
                return number + 1
        return batches


@pytest.mark.parametrize(
    "had,waited,rest,there,workers,why",
    [
        # Waiting for a disk: two workers bring a batch every 20 ms, and five hide that.
        (2, 0.012, 0.008, 0.0, 5, ""),
        # Computing: one of four processors is the step's, so three workers have their own.
        (1, 0.012, 0.008, 0.020, 3, ""),
        (3, 0.012, 0.008, 0.060, 3, "the predicted gain is below 3%"),
        (1, 0.0005, 0.0195, 0.010, 1, "they are enough: the program waits 0.50 ms for a batch"),
        (9, 0.012, 0.008, 0.0, 9, "no more than 8 are started unasked"),
    ],
)
def test_a_pass_decides_for_the_next(
    had: int, waited: float, rest: float, there: float, workers: int, why: str
) -> None:
    times = Times(had)
    assert times.run(waited, rest, there, 1000) == AHEAD + 1 + few.BATCHES
    assert times.plan.workers == workers and why in times.plan.why, times.plan.entry("a")
    assert bool(why) == bool(times.plan.why)


def test_a_short_pass_decides_nothing() -> None:
    times = Times(2)
    times.run(0.012, 0.008, 0.0, AHEAD + few.BATCHES)
    assert times.plan.choice is None and times.plan.workers == 2
    assert times.plan.entry("a")["text"] == "2 workers: too few batches were made to measure them"


@pytest.mark.parametrize("waited,kept", [(0.0, True), (0.013, False)])
def test_more_workers_that_gain_nothing_do_not_stay(waited: float, kept: bool) -> None:
    times = Times(2)
    times.run(0.012, 0.008, 0.0, 1000)
    assert times.run(waited, 0.008, 0.0, 1000) == AHEAD + 1 + TRIED
    told = times.plan.entry("a")
    if kept:
        assert told["text"].endswith("; a step took 20.0 ms before and 8.0 ms since"), told
        assert told["text"].startswith("5 workers instead of 2: a batch took 40.0 ms to make"), told
    else:
        assert "tried with 5 workers: a step took 21.0 ms, and 20.0 ms before" in told["reason"]
        assert told["workers"] == 2


def batches(made: Any) -> tuple[list[int], set[int]]:
    found, workers = [], set()
    for index, number in made:
        found += index.tolist()
        workers |= set(number.tolist())
    return found, workers


def test_the_next_pass_has_what_was_chosen() -> None:
    torch.manual_seed(3)
    plain = DataLoader(Rows(), batch_size=2, shuffle=True, num_workers=1)
    expected = [batches(plain)[0] for _ in range(3)] + [float(torch.rand(1))]
    torch.manual_seed(3)
    made = loader.DataLoader(Rows(), batch_size=2, shuffle=True, num_workers=1)
    found, numbers = [], []
    for number in range(3):
        indices, workers = batches(made)
        found.append(indices)
        numbers.append(workers)
        plan = _report.account_of(made).plan
        if number == 0:
            plan.workers = 3
        if number == 1:
            plan.left("as the test says")
    assert [*found, float(torch.rand(1))] == expected
    assert numbers == [{1}, {3}, {1}] and made.num_workers == 1


@pytest.mark.parametrize("persistent", [False, True])
def test_a_number_that_the_job_asks_for_comes_at_once(
    persistent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(contract.LOADER_WORKERS, "3")
    made = loader.DataLoader(
        Rows(),
        batch_size=2,
        num_workers=1,
        persistent_workers=persistent,
        prefetch_next_epoch=True,
    )
    for _ in range(3):
        assert batches(made) == (list(range(24)), {3})
    told = _report.account_of(made)
    assert told.plan.entry("a")["text"] == "3 workers instead of 1: as the job asks"
    assert told.told()["prefetched_epochs"] == 2 * persistent
    more = loader.DataLoader(Rows(), batch_size=2, num_workers=4)
    assert batches(more)[1] == {4}


@pytest.mark.parametrize(
    "options,why",
    [
        ({"persistent_workers": True}, "persistent_workers=True"),
        ({"worker_init_fn": lambda number: None}, "worker_init_fn"),
        ({"dataset": Stream()}, "iterable"),
    ],
)
def test_loaders_whose_workers_stay_as_many(options: dict[str, Any], why: str) -> None:
    made = loader.DataLoader(**{"dataset": Rows(), "num_workers": 1, **options})
    list(made)
    told = _report.account_of(made).plan.entry("a")
    assert why in told["reason"] and told["workers"] == 1 and told["state"] == "off"


def test_the_time_of_other_processes(tmp_path: Path) -> None:
    for pid, text in ((1, "1000000000 500000000 7\n"), (2, "250000000 0 1\n"), (3, "")):
        (tmp_path / f"{pid}").mkdir()
        (tmp_path / f"{pid}" / "schedstat").write_text(text)
    assert machine.used([1, 2, 3, 4], tmp_path) == pytest.approx(1.75)
