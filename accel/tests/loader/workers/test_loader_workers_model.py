# SPDX-License-Identifier: Apache-2.0
"""How many workers a loader gets: the model by a table, what the container has by files of
/proc and /sys, and which datasets and samplers stay in the training process.
"""

from __future__ import annotations

import functools
import logging
import multiprocessing
import random
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from paceline._core import machine
from paceline._core.machine import Machine
from paceline.loader._workers import gain, hazards, state
from paceline.loader._workers.gain import Measured
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
    TensorDataset,
)

GIB = 1 << 30
WAITS = Measured(0.016, 0.001, 0.016, 0.060, 1.0, 4096)
WORKS = Measured(0.016, 0.016, 0.016, 0.016, 1.0, 4096)
TWO, FOUR = Machine(2, 8 * GIB, GIB // 4), Machine(4, 8 * GIB, GIB // 4)


@pytest.mark.parametrize(
    "measured,machine,left,workers,gains,why",
    [
        # A sample that waits gains also beside a step that uses every processor.
        (WAITS, TWO, 1000, 1, (1.2, 1.3), ""),
        (WAITS._replace(busy=2.0), TWO, 1000, 1, (1.2, 1.3), ""),
        (WAITS._replace(making=0.2, waited=0.2), TWO, 1000, 7, (4.0, 4.5), ""),
        # One that computes gains only from idle processors.
        (WORKS, TWO, 1000, 2, (1.7, 2.0), ""),
        (WORKS._replace(busy=1.9), TWO, 1000, 0, (0.9, 1.0), "its 2 processors are busy"),
        (WORKS._replace(busy=1.9), FOUR, 1000, 2, (1.7, 2.0), ""),
        (WORKS._replace(starved=0.5), FOUR, 1000, 0, (0.9, 1.0), "for 50% of the time"),
        (WORKS, Machine(1, 8 * GIB, GIB), 1000, 0, (0.9, 1.0), "its 1 processors are busy"),
        (WORKS._replace(busy=0.1), Machine(1.1, 8 * GIB, GIB), 1000, 2, (1.7, 2.0), ""),
        # Nothing to gain.
        (WAITS._replace(making=0.0004, working=0.0004, waited=0.0004), FOUR, 1000, 0, (0.9, 1.1), "taking one"),
        (WAITS._replace(making=0.001, waited=0.001), FOUR, 1000, 0, (1.0, 1.03), "below 3%"),
        (WAITS, FOUR, 5, 0, (1.2, 1.3), "the 5 batches of a pass would gain 0.08 s"),
        (WAITS, FOUR, None, 1, (1.2, 1.3), ""),
        # A short pass pays for some of the workers that a long one gets.
        (WAITS._replace(making=0.2, waited=0.2), TWO, 4, 4, (2.5, 2.7), ""),
        (WAITS._replace(making=0.2, waited=0.2), TWO, 3, 0, (4.0, 4.5), "the 3 batches"),
        (WAITS._replace(making=0.2, waited=0.2), TWO, 6, 7, (4.0, 4.5), ""),
        # Memory bounds the number.
        (WAITS, Machine(4, GIB // 10, GIB), 1000, 0, (1, 1), "102 MiB of memory are free"),
        (WAITS._replace(making=0.2, waited=0.2), Machine(4, GIB, GIB), 1000, 2, (1.2, 1.5), ""),
    ],
)  # fmt: skip
def test_the_model(
    measured: Measured,
    machine: Machine,
    left: int | None,
    workers: int,
    gains: tuple[float, float],
    why: str,
) -> None:
    choice = gain.choose(measured, machine, left)
    assert choice.workers == workers and gains[0] <= choice.gain <= gains[1], choice
    assert why in choice.why and bool(why) == bool(choice.why), choice


def test_a_number_that_is_asked_for_holds() -> None:
    choice = gain.choose(WORKS._replace(busy=2.0), TWO, 1, asked=3)
    assert choice.workers == 3 and not choice.why
    assert gain.choose(WAITS._replace(workers=5), TWO, 1, asked=3).workers == 5


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


PROC = {
    "proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n",
    "proc/self/status": "Name: python\nRssAnon:\t 2048 kB\n",
}
V2 = {
    "proc/self/cgroup": "0::/pod/rank\n",
    "sys/fs/cgroup/pod/cpu.max": "150000 100000\n",
    "sys/fs/cgroup/pod/rank/cpu.max": "max 100000\n",
    "sys/fs/cgroup/pod/memory.max": f"{2 * GIB}\n",
    "sys/fs/cgroup/pod/memory.current": f"{GIB}\n",
    "sys/fs/cgroup/pod/memory.stat": f"anon 5\ninactive_file {GIB // 2}\n",
}
V1 = {
    "proc/self/cgroup": "5:cpu,cpuacct:/pod\n4:memory:/pod\n",
    "sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us": "50000\n",
    "sys/fs/cgroup/cpu/pod/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{4 * GIB}\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{3 * GIB}\n",
}


@pytest.mark.parametrize(
    "files,ranks,expected",
    [
        ({}, "", Machine(8, 0, 0)),
        (PROC, "", Machine(8, 8 * GIB, 2 << 20)),
        (PROC, "4", Machine(2, 2 * GIB, 2 << 20)),
        ({**PROC, **V2}, "", Machine(1.5, GIB + GIB // 2, 2 << 20)),
        ({**PROC, **V1}, "2", Machine(0.25, GIB // 2, 2 << 20)),
        ({**PROC, "proc/self/cgroup": "0::/\n"}, "nonsense", Machine(8, 8 * GIB, 2 << 20)),
    ],
)
def test_what_the_container_has(
    files: dict[str, str],
    ranks: str,
    expected: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    monkeypatch.setattr(machine, "_allowed", lambda: 8)
    assert machine.seen(write(tmp_path, files)) == expected


class Rows(Dataset):
    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return index


class Repeats(Rows):
    luck = random.Random(3)

    def __getitem__(self, index: int) -> Any:
        return LUCK.random()


class Caches(Rows):
    @functools.lru_cache  # noqa: B019 - as programs do
    def decoded(self, index: int) -> Any:
        return index


LUCK = random.Random(3)


@pytest.mark.parametrize(
    "make,why",
    [
        (lambda: Rows(files=["a"] * 9999, logger=logging.getLogger("a")), ""),
        (lambda: Rows(transform=torch.nn.ReLU(), rows=torch.ones(3), names={"a": 1}), ""),
        (lambda: Subset(Rows(lock=threading.Lock()), [1]), r"dataset\.dataset\.lock is _thread.lock, which a fork"),
        (lambda: Rows(thread=threading.Thread()), "a fork breaks"),
        (lambda: Rows(file=open(__file__)), "an open file"),  # noqa: SIM115
        (lambda: Rows(rng=np.random.default_rng(1)), "numbers every worker would repeat"),
        (lambda: Rows(parts=[Rows(rng=torch.Generator())]), r"dataset\.parts\[0\]\.rng is torch"),
        (lambda: Rows(model=torch.nn.Linear(1, 1)), ""),
        (lambda: Rows(model=torch.nn.Linear(1, 1, device="meta")), "Linear, a model on meta, which a fork breaks"),
        (lambda: Rows(model=torch.jit.script(torch.nn.Linear(1, 1))), "a model in TorchScript"),
        (lambda: Rows(rows=torch.ones(1, device="meta")), "a tensor on meta"),
        (lambda: Repeats(), r"__getitem__ \(LUCK\) is random.Random"),
        (lambda: Caches(), "a cache"),
    ],
)  # fmt: skip
def test_what_a_fork_must_not_copy(make: Any, why: str) -> None:
    found = hazards.why_not_copied(DataLoader(make()))
    assert re.search(why, found) and bool(why) == bool(found), found


def test_a_collate_function_is_looked_at() -> None:
    model = torch.nn.Linear(1, 1, device="meta")
    assert "a model" in hazards.why_not_copied(DataLoader(Rows(), collate_fn=lambda rows: model))
    part = functools.partial(lambda lock, rows: rows, threading.Lock())
    assert "a fork breaks" in hazards.why_not_copied(DataLoader(Rows(), collate_fn=part))
    assert hazards.why_not_copied(DataLoader(Rows(), collate_fn=lambda rows: rows)) == ""


def test_batches_that_cannot_be_sent() -> None:
    assert hazards.why_not_sent({"a": [torch.ones(1), "b"]}) == ""
    assert "a tensor on meta" in hazards.why_not_sent({"a": [torch.ones(1, device="meta")]})
    assert "with a gradient" in hazards.why_not_sent((torch.ones(1, requires_grad=True),))
    assert hazards.payload({"a": [torch.ones(2, 3)], "b": torch.ones(4, dtype=torch.uint8)}) == 28


class Own(Sampler):
    def __init__(self) -> None:
        pass

    def __iter__(self) -> Any:
        return iter(range(8))

    def __len__(self) -> int:
        return 8


class Named(RandomSampler):
    """Only its name is the program's."""


class Reads(RandomSampler):
    def __iter__(self) -> Any:
        return iter([0])


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter(range(3))


def seeds_worker(worker: int, rank: int) -> None:
    """Stands for the function of Transformers' Trainer."""


seeds_worker.__module__ = "transformers.trainer_utils"


@pytest.mark.parametrize(
    "options,why",
    [
        ({}, ""),
        ({"shuffle": True, "batch_size": 3}, ""),
        ({"batch_size": None}, ""),
        ({"sampler": Named(Rows())}, ""),
        ({"sampler": [3, 1]}, ""),
        ({"batch_sampler": [[3, 1], [2]]}, ""),
        ({"sampler": DistributedSampler(Rows(), 2, 1)}, ""),
        ({"sampler": Own()}, "its sampler Own is the program's own"),
        ({"batch_sampler": BatchSampler(Reads(Rows()), 2, False)}, "its sampler Reads"),
        ({"worker_init_fn": print}, "worker_init_fn"),
        ({"worker_init_fn": functools.partial(seeds_worker, rank=1)}, ""),
        ({"dataset": Stream()}, "iterable"),
    ],
)
def test_which_loaders_may_be_asked_ahead(options: dict[str, Any], why: str) -> None:
    found = hazards.why_not(DataLoader(**{"dataset": Rows(), **options}))
    assert why in found and bool(why) == bool(found), found


def test_a_daemon_and_other_start_methods_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(TensorDataset(torch.ones(3)))
    with monkeypatch.context() as patched:
        patched.setattr(
            hazards.torch.multiprocessing, "get_start_method", lambda allow_none: "spawn"
        )
        assert "start by spawn" in hazards.why_not(loader)
    with monkeypatch.context() as patched:
        daemon = SimpleNamespace(daemon=True)
        patched.setattr(hazards.multiprocessing, "current_process", lambda: daemon)
        assert "a daemon" in hazards.why_not(loader)
    assert hazards.why_not(loader) == ""


def test_a_start_method_that_the_program_has_not_set_stays_unset() -> None:
    was = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(None, force=True)
    try:
        assert (
            hazards.start_method(DataLoader(Rows())) == multiprocessing.get_all_start_methods()[0]
        )
        assert multiprocessing.get_start_method(allow_none=True) is None
    finally:
        multiprocessing.set_start_method(was, force=True)


@pytest.mark.parametrize(
    "change,name",
    [
        (lambda rows: None, ""),
        (lambda rows: setattr(rows, "calls", 1), "dataset.dataset.calls"),
        (lambda rows: rows.cache.update({1: 2}), "dataset.dataset.cache"),
        (lambda rows: rows.kept.add_(1), "dataset.dataset.kept"),
        (lambda rows: setattr(rows, "more", None), "dataset.dataset.more"),
        (lambda rows: delattr(rows, "calls"), "dataset.dataset.calls"),
    ],
)
def test_a_dataset_that_changes_is_noticed(change: Any, name: str) -> None:
    rows = Rows(calls=0, cache={}, kept=torch.zeros(2), nan=float("nan"), array=np.ones(2))
    loader = DataLoader(Subset(rows, [1]))
    before = state.fingerprint(loader)
    change(rows)
    assert state.changed(before, state.fingerprint(loader)) == name


SEEN: list[int] = []
SETTINGS = {"size": 1}
COUNT = 0


class Config:
    size = 1


def remembers(make: Any) -> Any:
    made: dict[int, int] = {}

    @functools.wraps(make)
    def found(index: int) -> int:
        if index not in made:
            made[index] = make(index)
        return made[index]

    found.made = made  # type: ignore[attr-defined]
    return found


@remembers
def opened(index: int) -> int:
    return index


class Shares(Rows):
    """Its samples read and write what the whole program shares."""

    cache: dict[int, int] = {}

    def __getitem__(self, index: int) -> Any:
        global COUNT
        COUNT += SETTINGS["size"] * Config.size
        return self._made(index)

    @property
    def first(self) -> int:
        return SEEN[0]

    @staticmethod
    def _made(index: int) -> int:
        return opened(index)


def counts_more() -> None:
    global COUNT
    COUNT += 1


def exchanges(rows: Any) -> None:
    rows.made[3] = object()


@pytest.mark.parametrize(
    "change,name,at_once",
    [
        (lambda rows: None, "", True),
        (lambda rows: Shares.cache.update({len(Shares.cache): 1}), "Shares.cache", True),
        (lambda rows: SEEN.append(1), "SEEN", True),
        (lambda rows: counts_more(), "COUNT", True),
        (lambda rows: SETTINGS.update(size=SETTINGS["size"] + 1), "SETTINGS", True),
        (lambda rows: setattr(Config, "size", Config.size + 1), "Config.size", True),
        (lambda rows: opened(len(opened.made)), "made", True),
        # Seen only by a close look.
        (exchanges, "dataset.dataset.made", False),
        (lambda rows: rows.counts.__setitem__(1, 5), "dataset.dataset.counts", False),
        (lambda rows: rows.stats["a"].update(hits=1), "dataset.dataset.stats", False),
    ],
)
def test_what_samples_share_with_the_program_is_looked_at(
    change: Any, name: str, at_once: bool
) -> None:
    rows = Shares(made=[None] * 30_000, counts=np.zeros(4), stats={"a": {"hits": 0}})
    loader = DataLoader(Subset(rows, [1]))
    places = state.shared(loader)
    for closely in (False, True):
        before = state.fingerprint(loader, places, closely)
        change(rows)
        found = state.changed(before, state.fingerprint(loader, places, closely))
        assert found == (name if closely or at_once else ""), (closely, found)
        rows.made[3], rows.counts[1], rows.stats["a"] = None, 0, {"hits": 0}


def test_only_what_the_functions_of_samples_name_is_looked_at() -> None:
    """Nothing that the training changes beside them, and nothing of installed packages."""
    loader = DataLoader(Subset(Shares(), [1]), collate_fn=lambda rows: [len(SEEN), rows])
    names = {name for name, _ in state.shared(loader)}
    assert names == {"Shares.cache", "SEEN", "COUNT", "SETTINGS", "Config.size", "made"}
    assert state.shared(DataLoader(TensorDataset(torch.ones(3)))) == []
