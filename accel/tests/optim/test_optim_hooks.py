# SPDX-License-Identifier: Apache-2.0
"""Profilers, hooks and schedules see the steps of paceline.optim's optimizers as they see PyTorch's."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(
    0,
    str(
        Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release"))
        / "runtime"
        / "python"
    ),
)
from paceline import optim  # noqa: E402 - where it lies is known only now

KINDS = [optim.AdamW, optim.SGD, optim.LAMB]


def made(kind: Any) -> tuple[torch.Tensor, Any]:
    parameter = torch.nn.Parameter(torch.ones(4))
    parameter.grad = torch.ones(4)
    return parameter, kind([parameter], lr=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_profiler_sees_the_steps_that_are_made_while_it_runs(kind: Any) -> None:
    _, optimizer = made(kind)
    optimizer.step()
    with torch.autograd.profiler.profile() as profile:
        optimizer.step()
        optimizer.step()
    optimizer.step()
    names = [event.name for event in profile.function_events]
    assert names.count(f"Optimizer.step#{kind.__name__}.step") == 2, names


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.skipif(
    not hasattr(torch.optim.Optimizer, "register_step_pre_hook"), reason="no hooks of steps"
)
def test_hooks_are_called_once_a_step_while_they_are_there(kind: Any) -> None:
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    parameter, optimizer = made(kind)
    seen: list[tuple[str, list[float]]] = []

    def told(what: str) -> Any:
        return lambda *_: seen.append((what, parameter.tolist()))

    for begin, what in (
        (optimizer.register_step_pre_hook, "before"),
        (optimizer.register_step_post_hook, "after"),
        (register_optimizer_step_pre_hook, "before"),
        (register_optimizer_step_post_hook, "after"),
    ):
        before = parameter.tolist()
        handle = begin(told(what))
        optimizer.step()
        handle.remove()
        assert seen == [(what, before if what == "before" else parameter.tolist())]
        assert parameter.tolist() != before
        seen.clear()
        optimizer.step()
        assert not seen


@pytest.mark.skipif(
    not hasattr(torch.optim.Optimizer, "register_step_pre_hook"), reason="no hooks of steps"
)
def test_hooks_are_called_once_where_a_part_is_pytorchs() -> None:
    ours, theirs = (
        torch.nn.Parameter(torch.ones(4, dtype=dtype)) for dtype in (torch.float32, torch.float64)
    )
    optimizer = optim.AdamW([ours, theirs], lr=0.1)
    calls: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    for parameter in (ours, theirs):
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert calls == ["before", "after"]
    assert torch.allclose(ours.double(), theirs)


@pytest.mark.skipif(
    not hasattr(torch.optim.Optimizer, "profile_hook_step"), reason="made otherwise"
)
def test_who_has_replaced_what_pytorch_puts_around_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Any] = []

    def around(step: Any) -> Any:
        def called(self: Any, *arguments: Any) -> Any:
            calls.append(self)
            return step(self, *arguments)

        return called

    monkeypatch.setattr(torch.optim.Optimizer, "profile_hook_step", staticmethod(around))

    class Own(optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            return optim.SGD.step(self, closure) if closure else None

    parameter = torch.nn.Parameter(torch.ones(4))
    optimizer = Own([parameter])
    optimizer.step()
    assert calls == [optimizer]


def test_a_class_of_the_program_may_have_a_step_of_its_own() -> None:
    class Twice(optim.SGD):
        def step(self, closure: Any = None) -> Any:
            super().step(closure)
            return super().step()

    parameter, optimizer = made(Twice)
    optimizer.step()
    assert torch.allclose(parameter.detach(), torch.full((4,), 0.8))
    if hasattr(optimizer, "register_step_pre_hook"):
        calls: list[int] = []
        optimizer.register_step_pre_hook(lambda *_: calls.append(1))
        optimizer.step()
        assert torch.allclose(parameter.detach(), torch.full((4,), 0.6)) and calls


def test_a_schedule_knows_that_steps_were_made(recwarn: pytest.WarningsRecorder) -> None:
    _, optimizer = made(optim.AdamW)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(3):
        optimizer.step()
        schedule.step()
    assert not [str(one.message) for one in recwarn if "lr_scheduler" in str(one.message)]
