# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own optimizers on the CPU keep their table from step to step. Whatever a program changes
between two of them, the next step is what a table made anew would have made it.
"""

from __future__ import annotations

import copy
import gc
import pickle
import random
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import test_optim_cache as cases
import torch
from paceline.optim import _patch, _patch_host, _report
from test_optim_cache import reader  # noqa: F401 - a fixture, of both ways to read tensors

KINDS: dict[str, Any] = {
    "AdamW": lambda params: torch.optim.AdamW(params, lr=0.1),
    "AdamW of two groups": lambda params: torch.optim.AdamW(
        [{"params": params[:2], "weight_decay": 0.1}, {"params": params[2:]}], lr=0.1
    ),
    "Adam amsgrad": lambda params: torch.optim.Adam(params, lr=0.1, amsgrad=True),
    "SGD": lambda params: torch.optim.SGD(params, lr=0.1),
    "SGD momentum": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, dampening=0.3),
}


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    yield
    _patch.uninstall()


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The tables that were made row by row."""
    made: list[Any] = []

    class Counted(_patch_host.HostTable):
        def __init__(self, add_group: Any) -> None:
            super().__init__(add_group)
            made.append(weakref.ref(self))

    monkeypatch.setattr(_patch_host, "HostTable", Counted)
    return made


def given(kind: str, params: list[torch.Tensor]) -> Any:
    optimizer = KINDS[kind](params)
    assert not _patch.accelerate(optimizer)
    return optimizer


class Pair:
    """Two runs of the same steps: one that keeps its table, and one that makes it anew."""

    def __init__(self, kind: str, tables: list[Any], dtype: torch.dtype = torch.float32) -> None:
        self.runs = [
            (params, given(kind, params)) for params in (cases.leaves(dtype) for _ in "ab")
        ]
        self.tables = tables
        self.number = 0

    def step(self, change: Any = None) -> bool:
        """Whether a kept table served."""
        self.number += 1
        served = []
        for params, optimizer in self.runs:
            cases.give(params, self.number)
            if change:
                change(params, optimizer)
            before = len(self.tables)
            optimizer.step()
            fused = _report.outcome_of(optimizer).fused > 0
            served.append(fused and len(self.tables) == before)
        (_, one), (_, other) = self.runs
        if hasattr(other, "_paceline_kept"):
            del other._paceline_kept
        cases.compare(one, other)
        outcomes = [_report.outcome_of(each) for each in (one, other)]
        assert outcomes[0].fused == outcomes[1].fused
        assert outcomes[0].elsewhere == outcomes[1].elsewhere
        assert not served[1]
        return served[0]


@pytest.mark.parametrize("kind", list(KINDS))
def test_what_a_program_changes_is_seen(kind: str, tables: list[Any]) -> None:
    for change in cases.ALWAYS + ([] if kind == "SGD" else cases.OF_STATE):
        pair = Pair(kind, tables)
        # The first step of momentum is another than those after it.
        served = [pair.step() for _ in range(4)]
        assert served == [False, kind != "SGD momentum", True, True], change
        assert not pair.step(change), change
        for _ in range(4):
            pair.step()


@pytest.mark.parametrize("seed", range(6))
def test_any_changes_in_any_order_are_seen(seed: int, tables: list[Any]) -> None:
    chosen = random.Random(seed)
    kind = chosen.choice(list(KINDS))
    dtype = chosen.choice([torch.float32, torch.bfloat16])
    pair = Pair(kind, tables, dtype)
    changes = [*cases.ALWAYS, cases.write]
    changes += [] if kind == "SGD" else [cases.exchange_memory, *cases.OF_STATE]
    changes.remove(cases.other_parameter)  # the old one's state stays
    if dtype is torch.bfloat16:
        changes.remove(cases.negate)
    for _ in range(40):
        change = chosen.choice([None, chosen.choice(changes)])
        try:
            pair.step(change)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {pair.number}, {change}: {error}") from error


def test_groups_are_read_as_they_are_now(tables: list[Any]) -> None:
    pair = Pair("AdamW", tables)
    pair.step()
    rate = torch.tensor(0.5)
    for values in ({"lr": 0.7}, {"lr": rate}, {"betas": (0.5, 0.6)}, {"maximize": True}):
        served = pair.step(
            lambda params, optimizer, values=values: optimizer.param_groups[0].update(values)
        )
        assert served, values
    assert pair.step(lambda params, optimizer: rate.fill_(0.25) and None)
    for values in ({"differentiable": True}, {"capturable": True}):
        (params, optimizer), _ = pair.runs
        cases.give(params, 9)
        optimizer.param_groups[0].update(values)
        try:
            optimizer.step()
        except (AssertionError, RuntimeError):  # how PyTorch takes it on the CPU
            pass
        assert not _report.outcome_of(optimizer).fused, values
        optimizer.param_groups[0].update(dict.fromkeys(values, False))


def test_torchs_own_step_may_come_between(tables: list[Any]) -> None:
    """The state is one, so a table serves on where PyTorch has made a step."""
    for kind in ("AdamW", "SGD momentum"):
        params = cases.leaves()
        optimizer = given(kind, params)
        theirs = cases.leaves()
        reference = KINDS[kind](theirs)
        for number in range(8):
            cases.give(params, number)
            cases.give(theirs, number)
            optimizer._paceline_optimizer = number not in (3, 4)
            before = len(tables)
            optimizer.step()
            reference.step()
            assert (len(tables) == before) is (number > 1 or (kind == "AdamW" and number > 0))
        for one, other in zip(params, theirs):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_nothing_is_held_that_the_program_lets_go(tables: list[Any]) -> None:
    params = cases.leaves()
    optimizer = given("AdamW", params)
    gc.disable()
    try:
        for number in range(3):
            cases.give(params, number)
            optimizer.step()
        assert len(tables) == 1 and tables[0]() is not None
        gone = weakref.ref(params[0].grad), weakref.ref(optimizer.state[params[0]]["exp_avg"])
        params[0].grad = None
        optimizer.state.clear()
        assert [one() for one in gone] == [None, None]
        gone = weakref.ref(optimizer), weakref.ref(params[0])
        del optimizer, params
        assert [one() for one in gone] == [None, None]
    finally:
        gc.enable()


def test_copies_make_tables_of_their_own(tables: list[Any]) -> None:
    params = cases.leaves()
    optimizer = given("AdamW", params)
    for number in range(2):
        cases.give(params, number)
        optimizer.step()
    assert pickle.loads(pickle.dumps(optimizer._paceline_kept)) is None
    other = copy.deepcopy(optimizer)
    assert not _patch.accelerate(other)
    theirs = other.param_groups[0]["params"]
    for number in range(2, 4):
        for each, of in ((optimizer, params), (other, theirs)):
            cases.give(of, number)
            each.step()
    cases.compare(optimizer, other)


def test_tables_that_serve_one_step_are_not_kept_each_time(
    tables: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []
    original = _patch_host.HostTable.can_serve

    def counted(self: Any, optimizer: Any) -> bool:
        tried.append(optimizer)
        return original(self, optimizer)

    monkeypatch.setattr(_patch_host.HostTable, "can_serve", counted)
    params = cases.leaves()
    optimizer = given("AdamW", params)
    for number in range(64):
        cases.give(params, number)
        cases.move(params, optimizer)
        optimizer.step()
    assert len(tried) == 7  # of steps 1, 2, 4, … 64
