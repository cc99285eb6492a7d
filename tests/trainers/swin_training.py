# SPDX-License-Identifier: Apache-2.0
"""A step of training of a Swin model, for comparisons of what attends in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import swin_stand_in
import torch
from paceline._core import reports

Tensor = torch.Tensor
LAYERS = 4  # of the models here
SIDE = 56  # two stages of windows of 7: the first one has shifted windows


def made(model: Callable[..., torch.nn.Module], **more: Any) -> torch.nn.Module:
    torch.manual_seed(3)
    built = model(**more)
    with torch.no_grad():  # what begins at 0 or near it would tell little
        for name, parameter in built.named_parameters():
            if "position_bias" in name or "cpb_mlp" in name or not parameter.any():
                parameter.normal_()
    return built


def images(height: int = SIDE, width: int = SIDE) -> Tensor:
    return torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(4))


def output(model: Any, batch: Tensor) -> Tensor:
    result = model(batch)
    result = result[-1] if isinstance(result, (tuple, list)) else result
    for name in ("logits", "last_hidden_state"):
        result = getattr(result, name, result)
    return result


def trained(model: torch.nn.Module, batch: Tensor) -> list[Tensor]:
    """The output, and all gradients of a step."""
    batch = batch.clone().requires_grad_()
    result = output(model, batch)
    (result * torch.linspace(-1, 1, result.numel()).view_as(result)).sum().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    found = [result.detach(), batch.grad, *(each.clone() for each in gradients)]
    model.zero_grad()
    return found


def assert_near(ours: list[Tensor], theirs: list[Tensor]) -> None:
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def assert_attends(model: torch.nn.Module, batch: Tensor) -> Any:
    """With the operator's attention a step is what it is alone, and what it is afterwards. The
    operator's status while it was installed.
    """
    theirs = trained(model, batch)
    with swin_stand_in.installed() as operator:
        ours = trained(model, batch)
        assert operator.calls == LAYERS and operator.masks >= 1
        status = reports.OPERATORS.status()
        assert status.switch.startswith("on for ") and f": {LAYERS} calls" in status.switch
    assert_near(ours, theirs)
    assert_near(trained(model, batch), theirs)
    assert operator.calls == LAYERS, "uninstalled"
    return status
