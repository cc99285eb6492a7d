# SPDX-License-Identifier: Apache-2.0
"""Parity cases of what happens during and between passes: loops left early, nested passes, changes of
the dataset, failures.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import torch
from parity import LARGE, Rows, Stream, alike, both, case, passes, seed, state
from torch.utils.data import _utils, get_worker_info


@case
def left_early(kind: Any) -> list[Any]:
    seen: list[Any] = []
    for persistent in (False, True):
        seed()
        loader = kind(
            Rows(large=True),
            batch_size=2,
            shuffle=True,
            num_workers=2,
            persistent_workers=persistent,
        )
        for epoch in range(4):
            for number, batch in enumerate(loader):
                seen.append(batch)
                if number == (1, 12, 9, 0)[epoch]:
                    break
            seen.append(state())
        stream = kind(Stream(), batch_size=2, num_workers=2, persistent_workers=persistent)
        for _ in range(3):
            seen.append(next(iter(stream)))
        seen += passes(stream, 2)
    return seen


@case
def two_at_once(kind: Any) -> list[Any]:
    seen: list[Any] = []
    for persistent in (False, True):
        seed()
        loader = kind(
            Rows(12), batch_size=2, shuffle=True, num_workers=2, persistent_workers=persistent
        )
        for _ in range(2):
            seen += zip(loader, loader)
        for outer, batch in enumerate(loader):
            seen.append(batch)
            seen += list(loader)
            if outer == 1:
                break
        seen.append(state())
    return seen


@case
def validation_between(kind: Any) -> list[Any]:
    seen: list[Any] = []
    for persistent in (False, True):
        seed()
        options = {"num_workers": 2, "persistent_workers": persistent}
        training = kind(Rows(20, large=True), batch_size=4, shuffle=True, **options)
        validation = kind(Rows(9), batch_size=4, **options)
        small = kind(torch.arange(6), batch_size=2)
        for _ in range(3):
            seen += list(training)
            with torch.no_grad():
                seen += list(validation)
            seen += [*small, state()]
    return seen


@case
def dropout_between(kind: Any) -> list[Any]:
    seen: list[Any] = []
    for persistent in (False, True):
        seed()
        loader = kind(
            Rows(20), batch_size=4, shuffle=True, num_workers=2, persistent_workers=persistent
        )
        for _ in range(3):
            for batch in loader:
                seen.append((batch, torch.nn.functional.dropout(batch[0])))
    return seen


CHANGED = [1.0]


class Outside(Rows):
    def __getitem__(self, index: Any) -> Any:
        return CHANGED[0], super().__getitem__(index)


@case
def a_dataset_changed_between(kind: Any) -> list[Any]:
    seen: list[Any] = []
    for persistent in (False, True):
        seed()
        rows, values = Outside(20), torch.zeros(20, LARGE)
        array = np.zeros(20)
        loaders = [
            kind(data, batch_size=4, num_workers=2, persistent_workers=persistent)
            for data in (rows, values, array)
        ]
        for epoch in range(4):
            for loader in loaders:
                seen += list(loader)
            if epoch != 1:
                rows.scale += 1
                CHANGED[0] += 1
                values.add_(1)
                array += 1
    return seen


def prepare(worker: int) -> None:
    get_worker_info().dataset.scale = 10.0 * (worker + 1)
    random.seed(worker)


@case
def workers_set_up_by_the_program(kind: Any) -> list[Any]:
    return both(kind, Rows, batch_size=4, shuffle=True, worker_init_fn=prepare, timeout=30)


class Fails(Rows):
    def __getitem__(self, index: Any) -> Any:
        if int(index) == 9:
            raise KeyError("sample nine")
        return super().__getitem__(index)


def broken(worker: int) -> None:
    raise OSError(f"worker {worker} cannot")


@case
def exceptions(kind: Any) -> list[Any]:
    seen: list[Any] = []

    # Of 5 s, which PyTorch waits for each worker that has failed.
    with mock.patch.object(_utils, "MP_STATUS_CHECK_INTERVAL", 0.5):
        collect_failures(kind, broken, seen)
        # the iterators lie in the cycles of their exceptions: elsewhere it would be the 5 s
        gc.collect()
    return seen


def collect_failures(kind: Any, broken: Callable[[int], None], seen: list[Any]) -> None:
    for options in ({}, {"worker_init_fn": broken}):
        for persistent in (False, True):
            seed()
            loader = kind(
                Fails(), batch_size=4, num_workers=2, persistent_workers=persistent, **options
            )
            for _ in range(2):
                iterator = iter(loader)
                while True:
                    try:
                        seen.append(next(iterator))
                    except StopIteration:
                        break
                    except Exception as error:  # PyTorch goes on after one
                        text = str(error)
                        assert "Traceback" in text and "DataLoader worker process" in text
                        seen.append((type(error), "sample nine" in text, "worker 0 cannot" in text))


@case
def resumed(kind: Any) -> list[Any]:
    """From a checkpoint of the generator's state, in the middle of an epoch."""
    seed()
    loader = kind(Rows(), batch_size=4, shuffle=True, num_workers=2)
    before = torch.get_rng_state()
    whole = list(loader)
    torch.set_rng_state(before)
    rest = [batch for number, batch in enumerate(loader) if number >= 3]
    assert alike([batch[:2] for batch in whole[3:]], [batch[:2] for batch in rest])
    return [whole, rest, state()]
