# SPDX-License-Identifier: Apache-2.0
"""Steps of paceline.optim in functions that torch.compile has compiled, against the same steps as
always, to the bit: the compiler is to leave them alone, in whatever way the program calls them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(
    0,
    str(
        Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release"))
        / "runtime"
        / "python"
    ),
)
from paceline import amp, optim  # noqa: E402 - where it lies is known only now

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(
    not hasattr(torch, "_disable_dynamo"), reason="a PyTorch whose compiler is not kept out"
)

STEPS = 4
KINDS = ["AdamW", "Adam", "SGD", "LAMB", "LARS"]
# What is done with an optimizer and a scaler after backward.
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "step": lambda optimizer, _: optimizer.step(),
    "scaler.step": lambda optimizer, scaler: scaler.step(optimizer),
    "scaled_step": lambda optimizer, scaler: optimizer.scaled_step(scaler),
}


@pytest.fixture(autouse=True)
def nothing_compiled_yet() -> Iterator[None]:
    torch._dynamo.reset()
    yield


def trained(
    make: Callable[[Any], Any], call: str, scaler: Any, compiled: str
) -> list[torch.Tensor]:
    """The parameters after a few steps, with what `compiled` names in torch.compile: one has
    parameters of several sizes, whose steps are all different.
    """
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    optimizer = make(model.parameters())

    def update() -> None:
        CALLS[call](optimizer, scaler)

    step: Callable[[], Any] = update
    if compiled == "a function":
        step = torch.compile(update, backend="eager")
    elif compiled == "the method":
        step = torch.compile(optimizer.step, backend="eager")
    for number in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 2) * number).square().sum()
        (loss if scaler is None else scaler.scale(loss)).backward()
        step()
        if scaler is not None:
            scaler.update()
    return [parameter.detach() for parameter in model.parameters()]


def are_equal(
    make: Callable[[Any], Any], call: str, new_scaler: Callable[[], Any], compiled: str
) -> bool:
    expected = trained(make, call, new_scaler(), "nothing")
    return all(map(torch.equal, trained(make, call, new_scaler(), compiled), expected))


@pytest.mark.parametrize("compiled", ["a function", "the method"])
@pytest.mark.parametrize("limit", [None, 0.5])
@pytest.mark.parametrize("name", KINDS)
def test_a_compiled_step_is_the_step(name: str, limit: float | None, compiled: str) -> None:
    def make(parameters: Any) -> Any:
        return getattr(optim, name)(parameters, lr=0.1, max_grad_norm=limit)

    assert are_equal(make, "step", lambda: None, compiled)


@pytest.mark.parametrize("compiled", ["a function", "the method"])
@pytest.mark.parametrize("name", KINDS)
def test_so_is_one_over_state_in_the_hosts_memory(name: str, compiled: str) -> None:
    def make(parameters: Any) -> Any:
        return optim.Offload(getattr(optim, name), parameters, lr=0.1)

    assert are_equal(make, "step", lambda: None, compiled)


@pytest.mark.parametrize(
    ("call", "scaler"),
    [("scaler.step", "GradScaler"), ("scaled_step", "GradScaler"), ("scaler.step", "LossScaler")],
)
def test_so_is_a_scaled_one(call: str, scaler: str) -> None:
    def make(parameters: Any) -> Any:
        return optim.AdamW(parameters, lr=0.1, max_grad_norm=0.5)

    def new_scaler() -> Any:
        return amp.LossScaler("cpu") if scaler == "LossScaler" else torch.amp.GradScaler("cpu")

    assert are_equal(make, call, new_scaler, "a function")
