# SPDX-License-Identifier: Apache-2.0
"""paceline.amp against what a user writes by hand, on the CPU in bfloat16."""

from __future__ import annotations

import copy
import io
import os
import sys
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
import paceline  # noqa: E402 - where it lies is known only now
from paceline import amp, optim  # noqa: E402

torch.set_num_threads(1)
HALF = torch.bfloat16


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.last = nn.Linear(16, 1)
        self.register_buffer("factor", torch.ones(1))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, batch: dict[str, Any], scale: Any = 1) -> Any:
        hidden = torch.relu(self.norm(self.first(batch["inputs"])))
        return {"out": (self.last(hidden) * self.factor * scale, [hidden]), "kept": batch["labels"]}


def made() -> Model:
    torch.manual_seed(2)
    return Model()


def fit(model: Any, optimizer: Any, steps: int = 40) -> list[float]:
    losses = []
    for number in range(steps):
        torch.manual_seed(number % 4)
        batch = {"inputs": torch.randn(12, 8), "labels": torch.randint(0, 2, (12,))}
        optimizer.zero_grad()
        answer = model(batch, scale=torch.ones(1))
        out = answer["out"][0]
        assert out.dtype is torch.float32 and answer["kept"].dtype is torch.int64
        loss = nn.functional.mse_loss(out[:, 0], batch["inputs"].sum(1) / 4)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class ByHand(nn.Module):
    def __init__(self, model: Model, half: bool) -> None:
        super().__init__()
        self.model, self.half = model, half

    def forward(self, batch: dict[str, Any], scale: Any) -> Any:
        if self.half:
            batch, scale = {**batch, "inputs": batch["inputs"].to(HALF)}, scale.to(HALF)
        with torch.autocast("cpu", dtype=HALF):
            answer = self.model(batch, scale)
        return {"out": (answer["out"][0].float(), []), "kept": answer["kept"]}


def weights(model: Any) -> list[torch.Tensor]:
    return [value.clone() for value in model.state_dict().values()]


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_o1_is_autocast(kind: Any) -> None:
    theirs, ours = made(), made()
    expected = fit(ByHand(theirs, False), kind(theirs.parameters(), lr=0.02))
    optimizer = kind(ours.parameters(), lr=0.02)
    model, same = amp.decorate(ours, optimizer)
    assert model is ours and same is optimizer
    assert fit(model, optimizer) == expected
    assert all(torch.equal(a, b) for a, b in zip(weights(ours), weights(theirs)))
    assert all(parameter.dtype is torch.float32 for parameter in ours.parameters())


@pytest.mark.parametrize("kind", ["AdamW", "Adam", "SGD"])
def test_o2_keeps_float32_masters(kind: str) -> None:
    plain, theirs, ours = made(), made(), made()
    before = [parameter.detach().clone() for parameter in ours.parameters()]
    # By hand: weights rounded at each step, gradients taken up to float32 for an optimizer of
    # float32 copies.
    for module in (theirs.first, theirs.last):
        module.to(HALF)
    theirs.factor = theirs.factor.to(HALF)
    masters = [nn.Parameter(value.clone()) for value in before]
    of_masters = getattr(optim, kind)(masters, lr=0.02)

    class Copies:
        def zero_grad(self) -> None:
            theirs.zero_grad()

        def step(self) -> None:
            for master, parameter in zip(masters, theirs.parameters()):
                master.grad = parameter.grad.float()
            of_masters.step()
            with torch.no_grad():
                for master, parameter in zip(masters, theirs.parameters()):
                    parameter.copy_(master)

    expected = fit(ByHand(theirs, True), Copies())
    model, optimizer = amp.decorate(
        ours, getattr(torch.optim, kind)(ours.parameters(), lr=0.02), level="O2"
    )
    assert type(optimizer) is getattr(optim, kind)
    assert fit(model, optimizer) == expected
    assert all(torch.equal(a, b) for a, b in zip(weights(ours), weights(theirs)))
    kept = [optimizer.state[p].get("master_param", p.detach()) for p in ours.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(kept, masters))
    assert {p.dtype for p in ours.norm.parameters()} == {
        torch.float32
    } and ours.norm.running_mean.dtype is torch.float32
    assert ours.first.weight.dtype is ours.factor.dtype is HALF and ours.count.dtype is torch.int64

    losses = fit(plain, getattr(torch.optim, kind)(plain.parameters(), lr=0.02))
    assert abs(losses[-1] - expected[-1]) < 0.1 * losses[0], "it trains as float32 does"


def test_groups_and_state_come_along() -> None:
    model = made()
    before = torch.optim.AdamW(
        [
            {"params": model.first.parameters(), "lr": 0.5},
            {"params": model.last.parameters(), "weight_decay": 0.3},
        ],
        lr=0.01,
        amsgrad=True,
    )
    fit_one = model.first(torch.ones(2, 8)).sum() + model.last(torch.ones(2, 16)).sum()
    fit_one.backward()
    before.step()
    moment = before.state[model.first.weight]["exp_avg"].clone()
    grads = [p.grad.clone() for p in model.first.parameters()]
    _, optimizer = amp.decorate(model, before, "O2")
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.01]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.3]
    assert all(group["amsgrad"] for group in optimizer.param_groups)
    state = optimizer.state[model.first.weight]
    assert float(state["step"]) == 1 and torch.equal(state["exp_avg"], moment)
    assert all(torch.equal(p.grad, g.to(HALF)) for p, g in zip(model.first.parameters(), grads))


def test_a_decorated_model_can_be_copied_and_saved() -> None:
    model = amp.decorate(made().eval(), level="O2")
    batch = {"inputs": torch.randn(3, 8), "labels": torch.zeros(3)}
    expected = model(batch)["out"][0]
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    options = {"weights_only": False} if int(torch.__version__.split(".")[0]) >= 2 else {}
    for other in (copy.deepcopy(model), torch.load(file, **options)):
        assert other.forward.model is other
        assert torch.equal(other(batch)["out"][0], expected)
        with torch.no_grad():
            other.last.bias += 1
        assert not torch.equal(other(batch)["out"][0], expected)
        assert torch.equal(model(batch)["out"][0], expected)


def test_explained() -> None:
    amp.decorate(made(), level="O2")
    told = paceline.explain(as_dict=True)["mixed precision"]
    assert told["state"] == "on" and told["numerics"] == "Lossy"
    assert told["reason"].endswith("O2 in bfloat16 for test_amp.Model")
    assert "mixed precision: on (" in paceline.explain()


def test_what_cannot_be_done_is_said_before_anything_changes() -> None:
    model = made()
    parameters = list(model.parameters())
    scheduled = torch.optim.SGD(parameters, lr=0.1)
    torch.optim.lr_scheduler.StepLR(scheduled, 1)
    for arguments, error, said in (
        ((3,), TypeError, "model is int"),
        ((model, 3), TypeError, "optimizer is int"),
        ((model, None, "O3"), ValueError, "level is 'O3': it must be one of O1, O2"),
        ((model, None, "O1", torch.float64), ValueError, "dtype is torch.float64"),
        ((model, None, "O2", torch.float16), ValueError, "on the CPU: pass torch.bfloat16"),
        ((model, torch.optim.RMSprop(parameters), "O2"), TypeError, "none for RMSprop"),
        (
            (model, optim.SGD(parameters, master_weights=False), "O2"),
            ValueError,
            "master_weights=False",
        ),
        ((model, scheduled, "O2"), ValueError, "decorate first"),
    ):
        with pytest.raises(error) as raised:
            amp.decorate(*arguments)
        assert said in str(raised.value)
    assert "forward" not in model.__dict__ and all(p.dtype is torch.float32 for p in parameters)
    amp.decorate(model)
    with pytest.raises(ValueError, match="decorated already"):
        amp.decorate(model)
