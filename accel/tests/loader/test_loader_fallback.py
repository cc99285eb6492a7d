# SPDX-License-Identifier: Apache-2.0
"""Our iterator fails in the middle of a pass: PyTorch's goes on at the same sample, the next passes
have PyTorch's order, and the program's generators are where PyTorch leaves them.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
from paceline import loader
from torch.utils.data import DataLoader, Dataset, IterableDataset

PASSES, BROKEN_AT = 3, 4


class Rows(Dataset):
    def __len__(self) -> int:
        return 37

    def __getitem__(self, index: int) -> Any:
        if index == 30:
            raise ValueError("sample 30")
        return torch.full((8192,), float(index)), index


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter(range(32))


def passes(kind: Any, persistent: bool, break_it: Callable[[Any], None] | None) -> list[Any]:
    """What the program gets: labels of batches, errors, and the generator's state after each pass."""
    torch.manual_seed(5)
    made = kind(Rows(), batch_size=2, shuffle=True, num_workers=2, persistent_workers=persistent)
    seen: list[Any] = []
    for number in range(PASSES):
        iterator = iter(made)
        while True:
            if break_it and number == 1 and len(seen) == PASSES + 20 + BROKEN_AT:
                break_it(iterator)
            try:
                seen.append(next(iterator)[1].tolist())
            except ValueError:
                seen.append("sample 30")
            except StopIteration:
                break
        seen += [0] * (PASSES + 20 - len(seen)) if number == 0 else []
        seen.append(float(torch.rand(1)))
    return seen


def no_results(iterator: Any) -> None:
    iterator._exchange.region.collect = None


def no_answers(iterator: Any) -> None:
    """As a region whose memory cannot be read any more."""
    region = iterator._exchange.region
    region._functions = type("Refuses", (), {"__getattr__": lambda self, name: lambda *args: -5})()


def no_messages(iterator: Any) -> None:
    iterator._exchange.region.tell = None


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("break_it", [no_results, no_answers, no_messages])
def test_pytorchs_goes_on_at_the_same_sample(
    break_it: Callable[[Any], None], persistent: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = passes(DataLoader, persistent, None)
    capfd.readouterr()
    assert passes(loader.DataLoader, persistent, break_it) == expected
    said = capfd.readouterr().err
    # Batches that had arrived before are still ours.
    begins = re.findall(r"a loader is PyTorch's own from batch (\d+) of this pass on: ", said)
    assert len(begins) == 1 and 3 <= int(begins[0]) <= 6, said


def test_an_iterable_dataset_cannot_go_on_elsewhere() -> None:
    iterator = iter(loader.DataLoader(Stream(), batch_size=2, num_workers=2))
    next(iterator)
    no_results(iterator)
    with pytest.raises(TypeError):
        list(iterator)


def test_an_exception_of_the_programs_signal_handler_is_the_programs(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Alarm(Exception):
        pass

    def handler(number: int, frame: Any) -> None:
        raise Alarm

    made = loader.DataLoader(Rows(), batch_size=2, num_workers=1, persistent_workers=True)
    iterator = iter(made)
    batches = [next(iterator)[1].tolist()]
    before = signal.signal(signal.SIGALRM, handler)
    receive = iterator._exchange.region.collect

    def interrupted(timeout_ms: int) -> Any:
        iterator._exchange.region.collect = receive
        signal.raise_signal(signal.SIGALRM)
        return receive(timeout_ms)

    iterator._exchange.region.collect = interrupted
    try:
        with pytest.raises(Alarm):
            next(iterator)
    finally:
        signal.signal(signal.SIGALRM, before)
    batches += [next(iterator)[1].tolist() for _ in range(3)]
    assert batches == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert "PyTorch's own" not in capfd.readouterr().err
