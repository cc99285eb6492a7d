# SPDX-License-Identifier: Apache-2.0
"""Loss scaling and whole steps as CUDA graphs on a GPU: PyTorch's GradScaler to the bit without the
host waiting, captured steps against the same steps as always, what is refused, and both times.
Prints a line for each check; ends with 1 if one failed, and goes on after it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from checks import Check, emit, run
from paceline import optim
from paceline.amp import LossScaler
from paceline.amp import _patch as _precision
from paceline.graph import Refused, WholeStep
from torch import nn

GPU = torch.device("cuda")
STEPS = 24
checks: list[Check] = []


def check(function: Check) -> Check:
    checks.append(function)
    return function


@contextlib.contextmanager
def nobody_waits() -> Iterator[None]:
    """PyTorch raises where the host would wait for the device."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def model_of(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Linear(64, 256),
        nn.LayerNorm(256),
        nn.GELU(),
        nn.Dropout(dropout),
        nn.Linear(256, 256),
        nn.GELU(),
        nn.Linear(256, 8),
    ).to(GPU)


def batch_of(number: int, size: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    inputs, labels = (
        torch.randn(size, 64, generator=generator),
        torch.randint(0, 8, (size,), generator=generator),
    )
    return inputs.to(GPU), labels.to(GPU)


class Training:
    def __init__(
        self, make: Callable[[Any], Any], scaler: Any = None, dropout: float = 0.0
    ) -> None:
        self.model = model_of(dropout)
        self.optimizer = make(self.model.parameters())
        self.scaler = scaler

    def __call__(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16, enabled=self.scaler is not None):
            loss = nn.functional.cross_entropy(self.model(inputs), labels)
        if self.scaler is None:
            loss.backward()
            self.optimizer.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        return loss.detach()


def same_models(one: nn.Module, other: nn.Module, number: int) -> None:
    for (name, a), b in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b), f"{name} after step {number}: {(a - b).abs().max()}"


def ours(parameters: Any) -> Any:
    return optim.AdamW(parameters, lr=1e-3, max_grad_norm=1.0)


def ours_unclipped(parameters: Any) -> Any:
    return optim.AdamW(parameters, lr=1e-3)


def fused(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=1e-3, fused=True)


def capturable(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=1e-3, fused=True, capturable=True)


@check
def our_scaler_is_gradscaler_to_the_bit() -> None:
    for make in (fused, ours_unclipped):
        # A first scale so large that the first steps are skipped, and a growth that comes soon.
        factors: dict[str, Any] = {"init_scale": 2.0**40, "growth_interval": 4}
        one, other = (
            Training(make, LossScaler(**factors)),
            Training(make, torch.amp.GradScaler("cuda", **factors)),
        )
        for number in range(40):
            batch = batch_of(number)
            one(*batch)
            other(*batch)
            assert one.scaler.get_scale() == other.scaler.get_scale(), (
                f"{make.__name__}, step {number}"
            )
            same_models(one.model, other.model, number)
        assert one.scaler.state_dict() == other.scaler.state_dict()
        assert one.scaler.get_scale() < 2.0**40, "no step was skipped"


@check
def the_host_waits_in_no_scaled_step() -> None:
    for make in (ours, ours_unclipped, fused):
        training = Training(make, LossScaler(init_scale=2.0**40, growth_interval=4))
        batch = batch_of(0)
        training(*batch)
        with nobody_waits():
            for _ in range(8):
                training(*batch)


@check
def an_optimizer_that_would_make_the_host_wait_is_refused() -> None:
    training = Training(torch.optim.RMSprop, LossScaler())
    try:
        training(*batch_of(0))
    except TypeError as error:
        assert "cannot be told by the device" in str(error), error
    else:
        raise AssertionError("it was not refused")


@check
def a_captured_step_is_the_step() -> None:
    for make in (ours, ours_unclipped, capturable):
        for scaled in (False, True):
            scalers = [
                LossScaler(init_scale=2.0**40, growth_interval=4) if scaled else None
                for _ in range(2)
            ]
            one, other = Training(make, scalers[0]), Training(make, scalers[1])
            step = WholeStep(one, model=one.model, optimizer=one.optimizer)
            for number in range(STEPS):
                batch = batch_of(number)
                mine, theirs = step(*batch), other(*batch)
                assert torch.equal(mine, theirs), (
                    f"{make.__name__}, scaled {scaled}, step {number}: {mine} and {theirs}"
                )
                same_models(one.model, other.model, number)
            assert step.is_captured
            if scaled:
                assert scalers[0].get_scale() == scalers[1].get_scale() < 2.0**40  # type: ignore[union-attr]


@check
def replays_draw_new_numbers_and_wait_for_nothing() -> None:
    training = Training(ours, dropout=0.5)
    step = WholeStep(training, model=training.model, optimizer=training.optimizer)
    batch = batch_of(0)
    for group in training.optimizer.param_groups:
        group["lr"] = 0.0
    for _ in range(4):
        step(*batch)
    seen = {float(step(*batch)) for _ in range(6)}
    assert len(seen) > 3, f"dropout drew the same: {seen}"
    with nobody_waits():
        for _ in range(4):
            step(*batch)


def refusal(training: Any, *, model: Any = None, optimizer: Any = None, batches: Any = None) -> str:
    step = WholeStep(training, model=model, optimizer=optimizer)
    try:
        for batch in batches or [batch_of(number) for number in range(6)]:
            step(*batch)
    except Refused as reason:
        return str(reason)
    raise AssertionError("nothing was refused")


@check
def what_cannot_be_captured_is_refused_by_name() -> None:
    training = Training(ours)

    def reads(*batch: torch.Tensor) -> Any:
        return training(*batch).item()

    def masks(inputs: torch.Tensor, labels: torch.Tensor) -> Any:
        return training(inputs, labels), inputs[labels > 3].sum()

    def copies(inputs: torch.Tensor, labels: torch.Tensor) -> Any:
        return training(inputs, labels).cpu()

    for function, said in (
        (reads, "reads a value on the host"),
        (masks, "picks by a mask"),
        (copies, "copies a tensor to the host"),
    ):
        text = refusal(function, model=training.model, optimizer=training.optimizer)
        assert said in text and "step_check.py" in text, text
    last = [*(batch_of(number) for number in range(5)), batch_of(5, size=7)]
    assert "(32, 64)" in (text := refusal(training, batches=last)) and "(7, 64)" in text, text
    on_host = [tuple(each.cpu() for each in batch_of(0))]
    assert "move it to the GPU" in (text := refusal(training, batches=on_host)), text
    adam = Training(lambda parameters: torch.optim.AdamW(parameters, lr=1e-3))
    assert "capturable=True" in (
        text := refusal(adam, model=adam.model, optimizer=adam.optimizer)
    ), text

    # Not seen by the looks before it: the capture itself fails, and training goes on as always.
    def waits(*batch: torch.Tensor) -> Any:
        loss = training(*batch)
        torch.cuda.current_stream().synchronize()
        return loss

    stream = torch.cuda.current_stream()
    assert "could not be captured" in (
        text := refusal(waits, model=training.model, optimizer=training.optimizer)
    ), text
    assert torch.cuda.current_stream() == stream
    assert torch.rand(1000, device=GPU).unique().numel() > 1
    before = [parameter.detach().clone() for parameter in training.model.parameters()]
    training(*batch_of(0))
    assert any(
        not torch.equal(a, b) for a, b in zip(before, training.model.parameters(), strict=True)
    )
    step = WholeStep(training, model=training.model, optimizer=training.optimizer)
    for number in range(6):
        step(*batch_of(number))
    assert step.is_captured


@check
def a_rate_on_the_device_moves_between_replays() -> None:
    rates = [torch.tensor(1e-3, device=GPU) for _ in range(2)]
    one, other = (
        Training(lambda p, rate=rate: optim.AdamW(p, lr=rate, capturable=True)) for rate in rates
    )
    step = WholeStep(one, model=one.model, optimizer=one.optimizer)
    for number in range(STEPS):
        batch = batch_of(number)
        step(*batch)
        other(*batch)
        same_models(one.model, other.model, number)
        for rate in rates:
            rate.mul_(0.9)


@check
def a_compiled_model_is_captured() -> None:
    for whole in (False, True):
        one, other = Training(ours), Training(ours)
        function: Callable[..., Any] = one
        if whole:
            function = torch.compile(lambda *batch, one=one: one(*batch))
        else:
            one.model = torch.compile(one.model)
        step = WholeStep(function, model=one.model, optimizer=one.optimizer)
        for number in range(8):
            batch = batch_of(number)
            mine, theirs = step(*batch), other(*batch)
            assert torch.allclose(mine, theirs, rtol=1e-3, atol=1e-4), (
                f"whole {whole}, step {number}: {mine}, {theirs}"
            )
        assert step.is_captured


@check
def scaled_step_takes_16_bit_parameters() -> None:
    # GradScaler itself takes no bfloat16 on a GPU.
    leaves = [torch.ones(5, 3, device=GPU, dtype=torch.float16).requires_grad_() for _ in range(2)]
    made = [
        (leaf, optim.AdamW([leaf], max_grad_norm=0.5), torch.amp.GradScaler("cuda", init_scale=8.0))
        for leaf in leaves
    ]
    for number in range(4):
        for leaf, optimizer, scaler in made:
            leaf.grad = None
            scaler.scale((leaf * (number + 1)).sum().float()).backward()
            if number == 2:
                leaf.grad[0, 0] = float("inf")
            if leaf is leaves[0]:
                optimizer.scaled_step(scaler)
            else:
                scaler.step(optimizer)
            scaler.update()
    assert torch.equal(*leaves) and float(leaves[0].detach().sum()) != 15.0
    assert made[0][2].get_scale() == made[1][2].get_scale() == 4.0


@contextlib.contextmanager
def injected(install: Callable[[], Any]) -> Iterator[None]:
    """As in a program whose job asks for it; everything else here runs without injection."""
    stopped = os.environ.pop("PACELINE_DISABLE", None)
    install()
    try:
        yield
    finally:
        _precision.uninstall()
        if stopped is not None:
            os.environ["PACELINE_DISABLE"] = stopped


@check
def o1_of_a_job_is_autocast() -> None:
    model, (inputs, _) = model_of(), batch_of(0)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        expected = model(inputs)
    assert expected.dtype is torch.bfloat16
    with injected(lambda: _precision._patch(nn.Module)):
        got = model(inputs)
    assert got.dtype is torch.float32 and torch.equal(got, expected.float())
    assert not torch.equal(model(inputs), got), "it is gone again"


@check
def tf32_of_a_job_is_pytorchs() -> None:
    torch.manual_seed(1)
    one, other = (torch.randn(512, 512, device=GPU) for _ in range(2))
    exact, plain = one.double() @ other.double(), one @ other
    with injected(_precision.use_tf32):
        got = one @ other
    assert float((got - exact).abs().max()) > 10 * float((plain - exact).abs().max())
    assert torch.equal(one @ other, plain), "it is gone again"


@check
def times_of_a_step_as_always_and_captured() -> None:
    """No bar: the line is for the benchmarks' page."""
    training, captured = Training(ours, LossScaler()), Training(ours, LossScaler())
    step = WholeStep(captured, model=captured.model, optimizer=captured.optimizer)
    batch, row = batch_of(0), {}
    for name, call in (("eager", training), ("captured", step)):
        for _ in range(10):
            call(*batch)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(200):
            call(*batch)
        torch.cuda.synchronize()
        row[f"{name}_ms"] = round((time.perf_counter() - began) * 5, 4)
    emit(
        {"benchmark": "whole step", **row, "ratio": round(row["eager_ms"] / row["captured_ms"], 2)}
    )


if __name__ == "__main__":
    sys.exit(run(checks))
