# SPDX-License-Identifier: Apache-2.0
"""paceline.amp.LossScaler on the CPU: PyTorch's GradScaler to the bit where this PyTorch has one
for the CPU, its formulas written out where it has none, and what it refuses. On a GPU's side of it,
without one: test_optim_device.py; on a GPU: tests/gpu.
"""

from __future__ import annotations

import copy
import math
import os
import struct
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
from paceline.amp import LossScaler, _scaling  # noqa: E402
from paceline.optim import _device  # noqa: E402

torch.set_num_threads(1)
# One for the CPU: since PyTorch 2.3.
THEIRS = getattr(getattr(torch, "amp", None), "GradScaler", None)
STEPS = 40
NOT_FINITE = {3: math.inf, 4: math.nan, 11: -math.inf, 25: math.nan}
FACTORS: dict[str, Any] = {
    "init_scale": 1000.0,
    "growth_factor": 1.7,
    "backoff_factor": 0.3,
    "growth_interval": 3,
}


def float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def scales() -> list[tuple[float, int]]:
    """After each step, by the rules of GradScaler's documentation in float32."""
    scale, good, found = 1000.0, 0, []
    for number in range(STEPS):
        if number in NOT_FINITE:
            scale, good = float32(scale * 0.3), 0
        else:
            good += 1
            if good == 3:
                scale, good = float32(scale * 1.7), 0
        found.append((scale, good))
    return found


def parameters(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(7)
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in ((5, 3), (17,), (), (0, 2))]


KINDS: dict[str, Any] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "ours": lambda p: optim.AdamW(p, lr=0.01),
    "ours, clipped": lambda p: optim.SGD(p, lr=0.1, max_grad_norm=0.5),
}


def trained(
    scaler: Any, kind: str, by_hand: bool = False, dtype: torch.dtype = torch.float32
) -> Any:
    params = parameters(dtype)
    optimizer = KINDS[kind](params)
    trace = []
    for number in range(STEPS):
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(number)
        weights = [torch.randn(p.shape, generator=generator).to(dtype) for p in params]
        loss = sum((p * w).sum() for p, w in zip(params, weights))
        scaler.scale(loss).backward()
        if number in NOT_FINITE:
            params[1].grad[4] = NOT_FINITE[number]
        if by_hand:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(params[:3], 0.7)
        scaler.step(optimizer)
        scaler.update()
        trace.append(
            (
                scaler.get_scale(),
                scaler.state_dict()["_growth_tracker"],
                [p.detach().clone() for p in params],
            )
        )
    return trace


def same(ours: Any, theirs: Any) -> None:
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert one[:2] == other[:2], number
        assert all(torch.equal(a, b) for a, b in zip(one[2], other[2])), number


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_gradscaler_to_the_bit(
    kind: str, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`native`: PyTorch's operations on the CPU, else ours, which older releases need."""
    if not native:
        monkeypatch.setattr(_scaling, "on_cpu_too", lambda: False)
    for by_hand in (False, True):
        for dtype in (torch.float32, torch.bfloat16):
            ours = trained(LossScaler(**FACTORS), kind, by_hand, dtype)
            assert [step[:2] for step in ours] == scales()
            before = parameters(dtype)
            for number, (_, _, now) in enumerate(ours):
                moved = any(not torch.equal(a, b) for a, b in zip(before, now))
                assert moved == (number not in NOT_FINITE)
                before = now
            if THEIRS is not None:
                same(ours, trained(THEIRS("cpu", **FACTORS), kind, by_hand, dtype))


def test_a_scale_that_would_be_infinite_stays() -> None:
    params = parameters()
    optimizer = torch.optim.SGD(params, lr=0.0)
    scaler = LossScaler(init_scale=3e38, growth_interval=1)
    for _ in range(2):
        scaler.scale(torch.zeros(())).clone()
        params[0].grad = torch.ones(5, 3)
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == float32(3e38) and scaler.state_dict()["_growth_tracker"] == 0


def test_checkpoints_go_both_ways() -> None:
    whole = trained(LossScaler(**FACTORS), "SGD")
    first, second = LossScaler(**FACTORS), LossScaler()
    optimizer = KINDS["SGD"](parameters())
    for scaler, steps in ((first, 5), (second, 9)):
        if scaler is second:
            state = first.state_dict()
            if THEIRS is not None:
                theirs = THEIRS("cpu")
                theirs.load_state_dict(state)
                assert theirs.state_dict() == state
                state = theirs.state_dict()
            second.load_state_dict(state)
            assert second.state_dict() == first.state_dict()
        for number in range(5 if scaler is second else 0, steps):
            scaler.scale(torch.ones(()))
            for p in optimizer.param_groups[0]["params"]:
                p.grad = torch.full_like(p, NOT_FINITE.get(number, 1.0))
            scaler.step(optimizer)
            scaler.update()
    assert second.get_scale() == whole[8][0]
    held = second._scale
    second.load_state_dict(first.state_dict())
    assert second._scale is held, "a captured graph goes on reading it"
    with pytest.raises(ValueError, match="the state has no scale, growth_factor.*enabled=False"):
        second.load_state_dict({})


def test_several_optimizers_share_a_scale_and_disabled_does_nothing() -> None:
    scaler = LossScaler(init_scale=8.0)
    one, other = ([torch.ones(3, requires_grad=True)] for _ in range(2))
    optimizers = [torch.optim.SGD(one, lr=1.0), torch.optim.SGD(other, lr=1.0)]
    losses = scaler.scale([one[0].sum(), other[0].sum() * math.inf])
    for loss, optimizer in zip(losses, optimizers):
        loss.backward()
        scaler.step(optimizer)
    scaler.update()
    assert (
        one[0].tolist() == [0.0] * 3
        and other[0].tolist() == [1.0] * 3
        and scaler.get_scale() == 4.0
    )
    scaler.scale(torch.ones(()))
    scaler.step(optimizers[0])
    scaler.update(32.0)
    assert scaler.get_scale() == 32.0
    off = LossScaler(enabled=False)
    assert off.scale(losses) is losses and off.get_scale() == 1.0 and off.state_dict() == {}
    off.step(optimizers[0])
    off.update()
    off.load_state_dict({})


def test_a_sparse_gradient_is_unscaled() -> None:
    table = torch.nn.Embedding(6, 2, sparse=True)
    before = table.weight.detach().clone()
    scaler = LossScaler(init_scale=16.0)
    optimizer = torch.optim.SGD(table.parameters(), lr=1.0)
    scaler.scale(table(torch.tensor([1, 1, 4])).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert (before - table.weight.detach())[:, 0].tolist() == pytest.approx(
        [0, 2, 0, 0, 1, 0], abs=1e-6
    )


def test_it_is_made_as_gradscaler_is() -> None:
    for made in (
        LossScaler("cpu", 8.0),
        LossScaler(device=torch.device("cpu"), init_scale=8.0),
        LossScaler("cuda", 8.0),
    ):
        assert made.is_enabled() and made.scale(torch.ones(())) == 8.0


def test_what_cannot_be_done_is_said_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value, must in (
        ("init_scale", 0.0, "above 0"),
        ("growth_factor", 1.0, "above 1"),
        ("backoff_factor", 1.0, "above 0 and below 1"),
        ("growth_interval", 0, "at least 1"),
    ):
        with pytest.raises(ValueError, match=f"{name} is {value}: it must be {must}"):
            LossScaler(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(
        TypeError,
        match=(
            "device is 1024.0: it must be a device, as GradScaler's first argument is; pass"
            " init_scale=1024.0"
        ),
    ):
        LossScaler(1024.0)
    params = [torch.ones(2, requires_grad=True)]
    optimizer = torch.optim.RMSprop(params)
    scaler = LossScaler()
    for call in (scaler.unscale_, scaler.step):
        with pytest.raises(RuntimeError, match=r"nothing has been scaled yet: call scale\(loss\)"):
            call(optimizer)
    with pytest.raises(TypeError, match="scale was given float"):
        scaler.scale(1.0)
    scaler = LossScaler()
    scaler.scale(params[0].sum()).backward()
    with pytest.raises(RuntimeError, match="update is called before step"):
        scaler.update()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="unscale_ has been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    for call in (scaler.unscale_, scaler.step):
        with pytest.raises(RuntimeError, match="since the last update"):
            call(optimizer)
    with pytest.raises(RuntimeError, match="no closure"):
        scaler.step(optimizer, lambda: None)
    scaler.update()
    half = [torch.ones(2, dtype=torch.float16, requires_grad=True)]
    half[0].grad = torch.ones(2, dtype=torch.float16)
    with pytest.raises(
        ValueError, match="float16 gradients would lose small ones: clip in the step"
    ):
        scaler.unscale_(torch.optim.SGD(half, lr=0.1))
    # On a GPU the host would have to read whether to skip.
    monkeypatch.setattr(_device, "KIND", "cpu")
    monkeypatch.setattr(_device, "is_capturing", lambda: False)
    before = params[0].detach().clone()
    with pytest.raises(
        TypeError, match="RMSprop cannot be told by the device.*fused=True.*GradScaler, which waits"
    ):
        scaler.step(optimizer)
    monkeypatch.setattr(_device, "is_capturing", lambda: True)
    with pytest.raises(
        RuntimeError, match="its first step cannot be captured.*make one step before"
    ):
        LossScaler().scale(torch.ones(()))
    assert torch.equal(params[0], before)


def test_it_is_a_gradscaler_for_who_asks() -> None:
    scaler = LossScaler(**FACTORS)
    assert isinstance(scaler, THEIRS or torch.cuda.amp.GradScaler)
    assert (
        scaler.get_growth_factor(),
        scaler.get_backoff_factor(),
        scaler.get_growth_interval(),
    ) == (1.7, 0.3, 3)
    scaler.set_growth_interval(2)
    leaf = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([leaf], lr=0.1)
    for _ in range(2):
        scaler.scale(leaf.sum()).backward()
        scaler.step(optimizer, None)  # as Accelerate calls it
        with pytest.raises(RuntimeError, match="copied or saved after update"):
            copy.deepcopy(scaler)
        scaler.update()
        optimizer.zero_grad()
    twin = copy.deepcopy(scaler)
    assert twin.state_dict() == scaler.state_dict() and scaler.get_scale() == float32(1000 * 1.7)
    twin.update(3.0)
    assert (twin.get_scale(), scaler.get_scale()) == (3.0, float32(1000 * 1.7))
    with pytest.raises(RuntimeError, match="takes no closure"):
        scaler.step(optimizer, lambda: None)
