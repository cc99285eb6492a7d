# SPDX-License-Identifier: Apache-2.0
"""paceline.optim.Offload against the optimizer that it keeps in the host's memory, to the bit.
Parameters on the CPU stand for a GPU's here: what goes over a bus is copied all the same.
tests/gpu/optim_check.py has a real one.
"""

from __future__ import annotations

import copy
import os
import pickle
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

torch.set_num_threads(1)
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("AdamW", {"lr": 1e-2, "max_grad_norm": 0.5}),
    ("Adam", {"amsgrad": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("LAMB", {}),
    ("LARS", {"lr": 0.1}),
]


def leaves(dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(3)
    shapes: list[tuple[int, ...]] = [(61, 37), (40_001,), (), (0, 5), (2, 3, 5, 7)]
    made = [torch.randn(shape).to(dtype) for shape in shapes]
    made[-1] = made[-1].to(memory_format=torch.channels_last)
    return [leaf.requires_grad_() for leaf in made]


def give_gradients(*sets: list[torch.Tensor]) -> None:
    for several in zip(*sets):
        grad = torch.randn(several[0].shape).to(several[0].dtype)
        for leaf in several:
            leaf.grad = grad.clone(memory_format=torch.preserve_format)


def equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a.detach(), b.detach()) for a, b in zip(one, other))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name,options", KINDS, ids=lambda value: str(value))
def test_it_is_the_optimizer_it_keeps(
    name: str, options: dict[str, Any], dtype: torch.dtype
) -> None:
    kind = getattr(optim, name)
    ours, theirs = leaves(dtype), leaves(dtype)
    optimizers: list[Any] = [optim.Offload(kind, ours, **options), kind(theirs, **options)]
    schedules = [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9) for optimizer in optimizers]
    for number in range(12):
        give_gradients(ours, theirs)
        if number % 4 == 1:  # a branch of the model that was not used
            ours[0].grad = theirs[0].grad = None
        if number == 6:  # a checkpoint is loaded, an average taken
            with torch.no_grad():
                ours[1].mul_(0.5)
                theirs[1].mul_(0.5)
        for optimizer, schedule in zip(optimizers, schedules):
            optimizer.step()
            schedule.step()
        assert equal(ours, theirs), number
    assert (
        optimizers[0].state == {}
        and optimizers[0].param_groups[0]["lr"] == optimizers[1].param_groups[0]["lr"]
    )
    if "max_grad_norm" in options:
        assert optimizers[0].grad_norm == optimizers[1].grad_norm


def test_checkpoints_are_those_of_the_optimizer_both_ways() -> None:
    ours, theirs = leaves(torch.bfloat16), leaves(torch.bfloat16)
    groups = [{"params": theirs[:2], "lr": 1e-2}, {"params": theirs[2:]}]
    optimizer = optim.Offload(
        optim.AdamW, [{"params": ours[:2], "lr": 1e-2}, {"params": ours[2:]}], lr=1e-3
    )
    other = optim.AdamW(groups, lr=1e-3)
    for _ in range(3):
        give_gradients(ours, theirs)
        optimizer.step()
        other.step()
    for group in optimizer.param_groups:
        group["lr"] *= 0.1
    saved = optimizer.state_dict()
    assert [group["lr"] for group in saved["param_groups"]] == [1e-3, 1e-4]
    other.load_state_dict(copy.deepcopy(saved))  # or both would update the same tensors
    fresh = optim.Offload(optim.AdamW, [{"params": ours[:2]}, {"params": ours[2:]}])
    fresh.load_state_dict(copy.deepcopy(other.state_dict()))
    assert [group["lr"] for group in fresh.param_groups] == [1e-3, 1e-4]
    for _ in range(3):
        give_gradients(ours, theirs)
        fresh.step()
        other.step()
    assert equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_pytorch_does_not_see_written_counts_when_it_is_told(dtype: torch.dtype) -> None:
    leaf = torch.zeros(100, dtype=dtype).requires_grad_()
    leaf.grad = torch.ones_like(leaf)
    optimizer = optim.Offload(optim.SGD, [leaf], lr=0.5)
    optimizer.step()
    assert torch.equal(leaf.detach(), torch.full_like(leaf, -0.5))
    leaf.data = torch.full_like(leaf, 4)  # another place: seen
    optimizer.step()
    assert torch.equal(leaf.detach(), torch.full_like(leaf, 3.5))
    leaf.data.mul_(2)
    optimizer.refresh()
    optimizer.step()
    assert torch.equal(leaf.detach(), torch.full_like(leaf, 6.5))


def test_groups_can_be_added() -> None:
    ours, theirs = leaves(torch.float32), leaves(torch.float32)
    optimizers: list[Any] = [
        optim.Offload(optim.SGD, ours[:1], lr=0.1),
        optim.SGD(theirs[:1], lr=0.1),
    ]
    optimizers[0].add_param_group({"params": ours[1], "lr": 0.5})
    optimizers[1].add_param_group({"params": theirs[1], "lr": 0.5})
    give_gradients(ours, theirs)
    for optimizer in optimizers:
        optimizer.step()
    assert equal(ours, theirs)


@pytest.mark.skipif(
    not hasattr(torch.amp, "GradScaler"), reason="a scaler for the CPU came with PyTorch 2.3"
)
def test_a_gradient_scaler_unscales_and_skips() -> None:
    ours, theirs = leaves(torch.float32), leaves(torch.float32)
    optimizers: list[Any] = [
        optim.Offload(optim.AdamW, ours, max_grad_norm=1.0),
        optim.AdamW(theirs, max_grad_norm=1.0),
    ]
    scalers = [
        torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3) for _ in optimizers
    ]
    for number in range(8):
        for several, optimizer, scaler in zip((ours, theirs), optimizers, scalers):
            optimizer.zero_grad()
            torch.manual_seed(number)
            scaler.scale(sum((leaf * torch.randn(leaf.shape)).sum() for leaf in several)).backward()
            if number == 3:
                several[1].grad[7] = float("inf")
            scaler.step(optimizer)
            scaler.update()
        assert equal(ours, theirs) and scalers[0].get_scale() == scalers[1].get_scale(), number
    assert scalers[0].get_scale() != 1024.0


def test_what_makes_no_sense_is_refused_by_name() -> None:
    some = leaves(torch.float32)
    with pytest.raises(
        ValueError, match=r"kind is <class 'torch.optim.adamw.AdamW'>.*class of paceline.optim"
    ):
        optim.Offload(torch.optim.AdamW, some)
    with pytest.raises(ValueError, match="learning rate: -1.0"):
        optim.Offload(optim.AdamW, some, lr=-1.0)
    optimizer = optim.Offload(optim.SGD, some, lr=0.1)
    with pytest.raises(TypeError, match="state_dict"):
        pickle.dumps(optimizer)
    some[0].grad = torch.zeros_like(some[0]).to_sparse()
    with pytest.raises(RuntimeError, match="parameter 0 of group 0 has a gradient of layout"):
        optimizer.step()
    assert not optimizer._inner.__dict__.keys() & {"grad_scale", "found_inf"}
