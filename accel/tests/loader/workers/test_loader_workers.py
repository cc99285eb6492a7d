# SPDX-License-Identifier: Apache-2.0
"""Workers for loaders that have none: the same samples in the same order, the program's generators
untouched, and the way back to the training process at the same sample.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from paceline import loader
from paceline._core import contract, explain
from paceline._core.machine import Machine
from paceline.loader import _iterator, _native, _report
from paceline.loader._workers import passes, plan
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    Subset,
    default_collate,
)

SIZE, GIB = 60, 1 << 30
HERE = os.getpid()


class Time:
    """A clock that only the test moves. Samples that are made here take their time by it."""

    def __init__(self) -> None:
        self.now = self.used = 0.0

    def spend(self, seconds: float, processor: float = 0.0) -> None:
        self.now, self.used = self.now + seconds, self.used + processor


class Rows(Dataset):
    """Each sample tells which process made it."""

    def __init__(self, time: Time | None = None, wait: float = 0.0, work: float = 0.0) -> None:
        self.time, self.spent = time, (wait + work, work)

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> Any:
        if self.time is not None:
            self.time.spend(*self.spent)
        return {"row": torch.full((2048,), float(index)), "index": index, "by": os.getpid()}


class Broken(Rows):
    def __getitem__(self, index: int) -> Any:
        if index == 40:
            raise LookupError("sample 40")
        return super().__getitem__(index)


@pytest.fixture(autouse=True)
def asks(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def says(text: str, numerics: str = "Reordered") -> None:
        monkeypatch.setenv(contract.LOADER_WORKERS, text)
        monkeypatch.setenv(contract.NUMERICS, numerics)

    says("2")
    return says


@pytest.fixture
def time(asks: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> Time:
    """Workers are chosen, on a machine of four processors, by a clock of the test."""
    asks("Auto")
    time = Time()

    def made() -> plan.Plan:
        return plan.Plan(
            clock=lambda: time.now,
            processor=lambda: time.used,
            delayed=lambda: 0.0,
            look=lambda: Machine(4, 8 * GIB, GIB // 4),
        )

    monkeypatch.setattr(_iterator, "Plan", made)
    return time


@pytest.fixture(autouse=True)
def no_worker_is_left(patience: None) -> Iterator[None]:
    yield
    gc.collect()
    assert not multiprocessing.active_children()


def indices(batch: Any) -> Any:
    return batch["index"].tolist() if isinstance(batch, dict) else batch


def by_workers(batch: Any) -> bool:
    return bool((batch["by"] != HERE).any())


def entry(made: Any) -> dict[str, Any]:
    return _report.account_of(made).plan.entry("loader")


CASES: dict[str, Callable[[Any, Any], Any]] = {
    "in order": lambda kind, rows: kind(rows, batch_size=3),
    "shuffled": lambda kind, rows: kind(rows, batch_size=3, shuffle=True),
    "drop_last": lambda kind, rows: kind(rows, batch_size=7, shuffle=True, drop_last=True),
    "generator": lambda kind, rows: kind(
        rows, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(3)
    ),
    "replacement": lambda kind, rows: kind(
        rows, batch_size=2, sampler=RandomSampler(rows, replacement=True, num_samples=50)
    ),
    "batch_sampler": lambda kind, rows: kind(
        rows, batch_sampler=BatchSampler(RandomSampler(rows), 4, False)
    ),
    "subset": lambda kind, rows: kind(Subset(rows, range(5, 55)), batch_size=2, shuffle=True),
    "no batches": lambda kind, rows: kind(rows, batch_size=None, shuffle=True),
    "collate_fn": lambda kind, rows: kind(
        rows, batch_size=3, collate_fn=lambda rows: [row["index"] for row in rows]
    ),
}


def seen(made: Any, passes: int = 2) -> list[Any]:
    """What a program gets that draws as it trains and leaves some passes early."""
    found: list[Any] = [len(made)]
    for number in range(passes):
        for step, batch in enumerate(made):
            index = batch["index"] if isinstance(batch, dict) else batch
            found.append(index.tolist() if isinstance(index, torch.Tensor) else index)
            found.append(float(torch.rand(1)))
            if number == 1 and step == 4:
                break
    return [*found, torch.get_rng_state().tolist()]


@pytest.mark.parametrize("name", CASES)
def test_samples_order_and_generators_are_those_without_workers(name: str) -> None:
    torch.manual_seed(5)
    expected = seen(CASES[name](DataLoader, Rows()))
    torch.manual_seed(5)
    made = CASES[name](loader.DataLoader, Rows())
    assert seen(made) == expected
    assert entry(made)["workers"] == 2 and entry(made)["state"] == "on", entry(made)


def test_workers_come_in_the_first_pass_and_at_once_in_later_ones() -> None:
    made = loader.DataLoader(Rows(), batch_size=3, shuffle=True)
    first = [by_workers(batch) for batch in made]
    began = passes.WARM + passes.BATCHES
    assert first == [False] * began + [True] * (20 - began)
    assert all(by_workers(batch) for batch in made)
    iterator = iter(made)
    assert by_workers(next(iterator)) and isinstance(iterator._workers, _iterator.Iterator)
    assert made.num_workers == 0 and len(iterator) == 20
    assert _report.account_of(made).told()["in_slabs"] > 0


def test_passes_that_are_under_way_at_once_are_apart() -> None:
    made = loader.DataLoader(Rows(), batch_size=3)
    plain = [indices(batch) for batch in DataLoader(Rows(), batch_size=3)]
    for _ in range(2):
        pairs = [(indices(a), indices(b)) for a, b in zip(made, made)]
        assert pairs == list(zip(plain, plain))
    for _, batch in zip(range(2), made):
        assert indices(batch) in plain and [indices(each) for each in made] == plain


def test_what_the_program_changes_between_passes_is_seen() -> None:
    rows = Rows()
    made = loader.DataLoader(Subset(rows, range(SIZE)), batch_size=3)
    list(made)
    made.dataset.indices = list(range(SIZE - 1, -1, -1))
    assert [indices(batch) for batch in made][0] == [59, 58, 57]
    assert entry(made)["workers"] == 2


def test_a_change_in_the_middle_of_a_pass_takes_effect_at_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    made = loader.DataLoader(Subset(Rows(), range(SIZE)), batch_size=3)
    found = []
    for number, batch in enumerate(made):
        found.append(indices(batch))
        if number == 11:
            made.dataset.indices = [7] * SIZE
    assert found[11:13] == [[33, 34, 35], [7, 7, 7]] and len(found) == 20
    assert "the program changed dataset.indices in the middle" in entry(made)["reason"]
    assert "from batch 12 of this pass on" in capfd.readouterr().err


def broken(iterator: Any) -> None:
    iterator._workers._exchange.region.collect = None


def killed(iterator: Any) -> None:
    for worker in iterator._workers._workers:
        os.kill(worker.pid, signal.SIGKILL)


def test_an_error_of_a_sample_is_the_programs_own() -> None:
    made = loader.DataLoader(Broken(), batch_size=3)
    iterator, found = iter(made), []
    with pytest.raises(LookupError) as raised:
        for batch in iterator:
            found.append(indices(batch))
    assert str(raised.value) == "'sample 40'" or raised.value.args == ("sample 40",)
    assert len(found) == 13 and [indices(batch) for batch in iterator][0] == [42, 43, 44]


@pytest.mark.parametrize("break_it", [broken, killed])
def test_a_failure_of_the_workers_loses_and_repeats_no_sample(
    break_it: Callable[[Any], None], capfd: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(5)
    expected = seen(DataLoader(Rows(), batch_size=3, shuffle=True), 1)
    torch.manual_seed(5)
    made = loader.DataLoader(Rows(), batch_size=3, shuffle=True)
    found: list[Any] = [20]
    iterator = iter(made)
    for number, batch in enumerate(iterator):
        found += [indices(batch), float(torch.rand(1))]
        if number == 10:
            break_it(iterator)
    assert [*found, torch.get_rng_state().tolist()] == expected
    assert "workers failed in a pass: " in entry(made)["reason"]
    assert capfd.readouterr().err.count("a loader has no workers any more, from batch") == 1
    assert not any(by_workers(batch) for batch in made), "the next pass has none"


def test_workers_that_cannot_start_leave_the_pass_as_it_was(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuses(*arguments: Any) -> Any:
        raise OSError("no memory")

    monkeypatch.setattr(_iterator, "Exchange", refuses)
    made = loader.DataLoader(Rows(), batch_size=3)
    assert [indices(batch)[0] for batch in made] == list(range(0, SIZE, 3))
    assert "OSError: no memory" in entry(made)["reason"]
    assert "from batch 7 of this pass on: OSError: no memory" in capfd.readouterr().err


def test_without_the_library_workers_are_pytorchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "why_unavailable", lambda: "no library")
    monkeypatch.setattr(_iterator, "Exchange", None)
    made = loader.DataLoader(Rows(), batch_size=3)
    found = list(made)
    assert [indices(batch)[0] for batch in found] == list(range(0, SIZE, 3))
    assert by_workers(found[-1])


def test_an_error_of_the_sampler_comes_in_its_turn() -> None:
    class Ends(RandomSampler):
        pass

    def order() -> Any:
        yield from range(30)
        raise LookupError("no more")

    Ends.__iter__ = lambda self: order()
    Ends.__iter__.__module__ = RandomSampler.__module__
    Ends.__module__ = RandomSampler.__module__
    iterator, found = iter(loader.DataLoader(Rows(), sampler=Ends(Rows()), batch_size=3)), []
    with pytest.raises(LookupError, match="no more"):
        for batch in iterator:
            found.append(indices(batch)[0])
    assert found == list(range(0, 30, 3)) and by_workers(batch)


def test_an_exception_of_a_signal_handler_is_the_programs() -> None:
    class Alarm(Exception):
        pass

    def handler(number: int, frame: Any) -> None:
        raise Alarm

    made = loader.DataLoader(Rows(), batch_size=3)
    iterator = iter(made)
    found = [indices(next(iterator))[0] for _ in range(10)]
    before = signal.signal(signal.SIGALRM, handler)
    receive = iterator._workers._next_data

    def interrupted() -> Any:
        iterator._workers._next_data = receive
        signal.raise_signal(signal.SIGALRM)

    iterator._workers._next_data = interrupted
    try:
        with pytest.raises(Alarm):
            next(iterator)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert found + [indices(batch)[0] for batch in iterator] == list(range(0, SIZE, 3))


def steps(made: Any, time: Time, rest: float, used: float, with_workers: float = 0.0) -> list[bool]:
    """Trains one pass. A step takes `with_workers` longer while workers make the batches."""
    found = []
    for batch in made:
        found.append(by_workers(batch))
        time.spend(rest + with_workers * found[-1], used)
    return found


def test_samples_that_wait_get_workers(time: Time) -> None:
    made = loader.DataLoader(Rows(time, wait=0.02), batch_size=1)
    assert steps(made, time, 0.08, 0.08)[-1]
    told = entry(made)
    assert told["workers"] == 1 and 1.15 < told["predicted_gain"] < 1.25
    assert (told["making_seconds"], told["rest_seconds"]) == pytest.approx((0.02, 0.08))
    assert told["step_seconds_before"] == pytest.approx(0.1)
    assert told["step_seconds"] == pytest.approx(0.08)
    assert told["text"].startswith(
        "1 worker instead of none: a batch took 20.0 ms to make, of which 20.0 ms waiting, and the"
        " rest of a step 80.0 ms; predicted gain 1.2"
    ), told["text"]
    assert told["text"].endswith("; a step took 100.0 ms before and 80.0 ms since")


def test_samples_that_compute_get_none_where_all_processors_are_busy(time: Time) -> None:
    made = loader.DataLoader(Rows(time, work=0.02), batch_size=3)
    assert not any(steps(made, time, 0.08, 4 * 0.08))
    assert entry(made)["text"].startswith("no workers: its 4 processors are busy: ")
    assert type(iter(made)) is not passes.Pass, "it is not looked at again"


def test_workers_that_gain_nothing_end_in_the_same_pass(
    time: Time, capfd: pytest.CaptureFixture[str]
) -> None:
    made = loader.DataLoader(Rows(time, wait=0.04), batch_size=1)
    found = steps(made, time, 0.08, 0.0, with_workers=0.09)
    ramp = passes.PREFETCH * 1 + 1
    assert found.count(True) == ramp + plan.TRIED and len(found) == SIZE and not found[-1]
    assert "tried with 1 worker: a step took 170.0 ms, and 120.0 ms before" in entry(made)["reason"]
    assert not any(steps(made, time, 0.08, 0.0)) and capfd.readouterr().err == ""


def test_a_dataset_that_changes_as_samples_are_made_is_left_alone() -> None:
    class Counts(Rows):
        calls = 0

        def __getitem__(self, index: int) -> Any:
            self.calls += 1
            return super().__getitem__(index)

    made = loader.DataLoader(Counts(), batch_size=3)
    assert not any(by_workers(batch) for batch in made) and made.dataset.calls == SIZE
    assert entry(made)["reason"] == "making samples changes dataset.calls"


class Embeds(torch.nn.Module):
    """Its tokens are made for batches, as sentence-transformers does, and its weights may be."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(SIZE, 2)
        self.how = how

    def collate(self, rows: Any) -> Any:
        batch = default_collate(rows)
        if self.how == "asks for facts":
            assert next(self.parameters()).device.type == "cpu" and self.table.weight.shape[1] == 2
        elif self.how == "embeds":
            with torch.no_grad():
                batch["of model"] = self.table(batch["index"])
        elif self.how == "reads":
            batch["of model"] = torch.cat([self.table.weight.detach()])[batch["index"]]
        return batch


@pytest.mark.parametrize(
    "how,why",
    [
        ("nothing", ""),
        ("asks for facts", ""),
        ("embeds", "samples are made with a model's weights (embedding), which training changes"),
        ("reads", "samples are made with a model's weights (detach), which training changes"),
    ],
)
def test_a_model_is_held_by_workers_if_samples_are_made_without_its_weights(
    time: Time, how: str, why: str
) -> None:
    model = Embeds(how)
    made = loader.DataLoader(Rows(time, wait=0.02), batch_size=1, collate_fn=model.collate)
    assert steps(made, time, 0.08, 0.08)[-1] is not bool(why)
    assert entry(made)["reason"] == why


def test_batches_that_cannot_be_sent_are_made_here() -> None:
    made = loader.DataLoader(
        Rows(), batch_size=3, collate_fn=lambda rows: torch.ones(1, requires_grad=True)
    )
    assert len(list(made)) == 20 and "with a gradient" in entry(made)["reason"]


@pytest.mark.parametrize(
    "text,numerics,why",
    [
        ("2", "Bitwise", "are of class Reordered"),
        ("Auto", "Bitwise", "are of class Reordered"),
        ("Disabled", "Reordered", "is Disabled"),
        ("0", "Reordered", "none of Auto, Disabled and a number"),
        ("many", "Reordered", "none of Auto, Disabled and a number"),
    ],
)
def test_what_a_job_may_say(
    text: str,
    numerics: str,
    why: str,
    asks: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asks(text, numerics)
    monkeypatch.setattr(_report, "switch", "on")
    made = loader.DataLoader(Rows(), batch_size=3)
    assert not any(by_workers(batch) for batch in made)
    assert type(iter(made)).__module__ == "torch.utils.data.dataloader"
    told = explain.features()["loader workers"]
    assert told["state"] == "off" and why in told["reason"] and told["numerics"] == "Reordered"


def test_explain_names_what_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_report, "switch", "on")
    made = loader.DataLoader(Rows(), batch_size=3)
    list(made)
    told = explain.features()["loader workers"]
    assert told["state"] == "on" and any(
        one["text"].startswith("2 workers instead of none: as the job asks") for one in told["seen"]
    )
    assert "workers for loaders that have none or too few: on; numerics class Reordered" in (
        explain.explain()
    )
