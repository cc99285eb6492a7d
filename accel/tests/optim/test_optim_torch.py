# SPDX-License-Identifier: Apache-2.0
"""paceline.optim among the rest of PyTorch: checkpoints both ways, schedulers, scalers, hooks,
copies, data parallelism, and PyTorch's own list of optimizer inputs.
"""

from __future__ import annotations

import copy
import importlib.util
import io
import os
import pickle
import sys
import types
import unittest
from pathlib import Path
from typing import Any

import pytest
import torch
from programs import Train
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
from paceline import optim  # noqa: E402 - where it lies is known only now

NEW = int(torch.__version__.split(".")[0]) >= 2
torch.set_num_threads(1)

FAMILIES: list[tuple[str, dict[str, Any]]] = [
    ("AdamW", {"lr": 1e-2, "amsgrad": True}),
    ("Adam", {"lr": 1e-2, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
]


def problem(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(5)
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in ((17, 5), (33,), ())]


def train(leaves: list[torch.Tensor], optimizer: Any, steps: range) -> None:
    for number in steps:
        torch.manual_seed(number)
        for leaf in leaves:
            leaf.grad = torch.randn(leaf.shape).to(leaf.dtype)
        optimizer.step()


def saved(state: Any) -> Any:
    """Through a file, as a checkpoint goes."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer)


@pytest.mark.parametrize("name,options", FAMILIES)
@pytest.mark.parametrize(
    "ours_first", [True, False], ids=["ours then torch's", "torch's then ours"]
)
def test_checkpoints_go_both_ways(name: str, options: dict[str, Any], ours_first: bool) -> None:
    through = problem()
    whole = torch.optim.__dict__[name](through, **options)
    train(through, whole, range(20))
    leaves = problem()
    kinds = [getattr(optim, name), getattr(torch.optim, name)]
    first, second = (kind(leaves, **options) for kind in (kinds if ours_first else reversed(kinds)))
    train(leaves, first, range(10))
    second.load_state_dict(saved(first.state_dict()))
    train(leaves, second, range(10, 20))
    for one, other in zip(leaves, through):
        assert torch.allclose(one, other, atol=2e-6)
    ours, torchs = second.state_dict(), whole.state_dict()
    for number, state in torchs["state"].items():
        assert state.keys() == ours["state"][number].keys()
        for key, value in state.items():
            assert (
                torch.allclose(value, ours["state"][number][key], atol=2e-6)
                and value.dtype == ours["state"][number][key].dtype
            )


@pytest.mark.parametrize("name,options", FAMILIES)
def test_moments_and_masters_of_sixteen_bits_survive_a_checkpoint(
    name: str, options: dict[str, Any]
) -> None:
    kind = getattr(optim, name)
    through = problem(torch.bfloat16)
    whole = kind(through, **options)
    train(through, whole, range(20))
    leaves = problem(torch.bfloat16)
    first = kind(leaves, **options)
    train(leaves, first, range(10))
    second = kind(leaves, **options)
    second.load_state_dict(saved(first.state_dict()))
    train(leaves, second, range(10, 20))
    for one, other in zip(leaves, through):
        assert torch.equal(one, other)
        assert torch.equal(second.state[one]["master_param"], whole.state[other]["master_param"])


def test_a_master_that_torch_has_rounded_is_made_anew() -> None:
    leaves = problem(torch.bfloat16)
    ours = optim.AdamW(leaves, lr=1e-3)
    train(leaves, ours, range(5))
    torchs = torch.optim.AdamW(leaves, lr=1e-3)
    torchs.load_state_dict(ours.state_dict())
    train(leaves, torchs, range(5, 10))
    back = optim.AdamW(leaves, lr=1e-3)
    back.load_state_dict(torchs.state_dict())
    assert all("master_param" not in back.state[leaf] for leaf in leaves)
    values = [leaf.detach().clone() for leaf in leaves]
    train(leaves, back, range(10, 11))
    for leaf, value in zip(leaves, values):
        state = back.state[leaf]
        assert (
            state["exp_avg"].dtype is torch.float32 and state["master_param"].dtype is torch.float32
        )
        assert float((state["master_param"] - value.float()).abs().max()) < 2e-3


def test_copies_keep_what_they_were_told() -> None:
    leaves = problem()
    optimizer = optim.LAMB(leaves, max_grad_norm=1.5, master_weights=False)
    train(leaves, optimizer, range(3))
    for again in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert (
            type(again) is optim.LAMB
            and again.max_grad_norm == 1.5
            and again.master_weights is False
        )
        train(again.param_groups[0]["params"], again, range(3, 6))
    train(leaves, optimizer, range(3, 6))
    assert torch.equal(again.param_groups[0]["params"][0], leaves[0])


def test_groups_schedulers_and_closures() -> None:
    results = []
    for kind in (optim.AdamW, torch.optim.AdamW):
        leaves = problem()
        optimizer = kind(
            [{"params": leaves[:1], "lr": 0.1, "weight_decay": 0.5}, {"params": leaves[1:2]}],
            lr=1e-2,
        )
        optimizer.add_param_group({"params": leaves[2:], "betas": (0.8, 0.9)})
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

        def closure(leaves: Any = leaves, optimizer: Any = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            loss = sum((leaf**2).sum() for leaf in leaves)
            loss.backward()
            return loss

        losses = []
        for _ in range(10):
            losses.append(float(optimizer.step(closure).detach()))
            schedule.step()
        assert losses[0] > losses[-1]
        results.append(leaves)
    for one, other in zip(*results):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.skipif(not NEW, reason="hooks of optimizers came with PyTorch 2")
def test_step_hooks_run_once_also_where_torch_updates() -> None:
    torch.optim.AdamW([torch.zeros(1)])  # puts the profiler's hook around torch's own step
    leaf = torch.randn(4, dtype=torch.float64).requires_grad_()
    optimizer = optim.AdamW([leaf])
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    leaf.grad = torch.ones_like(leaf)
    before = leaf.detach().clone()
    optimizer.step()
    assert seen == ["before", "after"] and not torch.equal(before, leaf.detach())


def scaled_training(
    kind: Any, folded: bool, clip: float | None, bad_step: int = 4
) -> tuple[list[torch.Tensor], list[float]]:
    """A loop with a gradient scaler as users write it, or with what paceline.optim folds into the
    step.
    """
    leaves = problem()
    ours = kind is optim.AdamW
    optimizer = kind(leaves, lr=1e-2, **({"max_grad_norm": clip} if ours else {}))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    scales = []
    for number in range(12):
        optimizer.zero_grad()
        torch.manual_seed(number)
        loss = sum((leaf * torch.randn(leaf.shape)).sum() for leaf in leaves)
        scaler.scale(loss).backward()
        if number == bad_step:
            leaves[1].grad[3] = float("inf")
        if clip is not None and not ours:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(leaves, clip)
        if folded:
            optimizer.scaled_step(scaler)
        else:
            scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return leaves, scales


@pytest.mark.skipif(not NEW, reason="a scaler for the CPU came with PyTorch 2.3")
@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("clip", [None, 0.7])
def test_gradient_scalers(folded: bool, clip: float | None) -> None:
    expected, scales = scaled_training(torch.optim.AdamW, False, clip)
    leaves, ours = scaled_training(optim.AdamW, folded, clip)
    assert ours == scales and scales[4] == scales[3] / 2
    for one, other in zip(leaves, expected):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.skipif(not NEW, reason="a scaler for the CPU came with PyTorch 2.3")
@pytest.mark.parametrize("folded", [False, True])
def test_a_step_that_the_scaler_skips_changes_nothing(folded: bool) -> None:
    leaves = problem()
    optimizer = optim.AdamW(leaves)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(sum(leaf.sum() for leaf in leaves)).backward()
    optimizer.step()
    before = [leaf.detach().clone() for leaf in leaves]
    leaves[0].grad[0, 0] = float("nan")
    optimizer.scaled_step(scaler) if folded else scaler.step(optimizer)
    assert all(torch.equal(leaf.detach(), value) for leaf, value in zip(leaves, before))
    assert all(float(optimizer.state[leaf]["step"]) == 1 for leaf in leaves)
    with pytest.raises(RuntimeError, match="already been called"):
        optimizer.scaled_step(scaler) if folded else scaler.step(optimizer)


def optimizer_inputs() -> list[Any]:
    if importlib.util.find_spec("torch.testing._internal.common_optimizers") is None:
        return []
    if importlib.util.find_spec("expecttest") is None:
        # PyTorch's test helpers derive a class from it that is not used here.
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        sys.modules["expecttest"].TestCase = unittest.TestCase  # type: ignore[attr-defined]
    from torch.testing._internal.common_optimizers import optim_db

    found = []
    for info in optim_db:
        if info.optim_cls not in (torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD):
            continue
        for one in info.optim_inputs_func("cpu"):
            name = info.optim_cls.__name__
            found.append(pytest.param(name, one.kwargs, one.params, id=f"{name} {one.desc}"))
    return found


OPTIMIZER_INPUTS = optimizer_inputs()


@pytest.mark.skipif(not OPTIMIZER_INPUTS, reason="PyTorch's list of optimizer inputs came with 2.3")
@pytest.mark.parametrize("name,options,params", OPTIMIZER_INPUTS)
def test_pytorchs_own_optimizer_inputs(name: str, options: dict[str, Any], params: Any) -> None:
    ours, torchs = problem(), [leaf.detach().clone().requires_grad_() for leaf in problem()]
    optimizers = [
        kind([{"params": leaves[:2]}, {"params": leaves[2:], "lr": 0.02}], **options)
        for kind, leaves in ((getattr(optim, name), ours), (getattr(torch.optim, name), torchs))
    ]
    for leaves, optimizer in zip((ours, torchs), optimizers):
        train(leaves, optimizer, range(30))
    for one, other in zip(ours, torchs):
        assert torch.allclose(one, other, atol=3e-6, rtol=1e-6)


DATA_PARALLEL = """
    sys.path.insert(0, {python!r})
    from paceline import optim
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    def run(kind):
        model = nn.parallel.DistributedDataParallel(small())
        optimizer = kind(model.parameters(), lr=0.05)
        for number in range(20):
            torch.manual_seed(100 * number + dist.get_rank())
            batch = torch.randn(8, 4), torch.randn(8)
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()])
    ours, torchs = run(optim.AdamW), run(torch.optim.AdamW)
    other = ours.clone()
    dist.broadcast(other, 0)
    assert torch.equal(other, ours), "ranks differ"
    assert torch.allclose(ours, torchs, atol=1e-5), (ours - torchs).abs().max()
    dist.destroy_process_group()
"""


def test_data_parallel_ranks_stay_equal(train_by_fork: Train, runtime: Path) -> None:
    run = train_by_fork(
        DATA_PARALLEL.format(python=str(runtime / "python")), ranks=2, PACELINE_DISABLE="1"
    )
    assert run.code == 0, run.output


def test_without_the_library_torch_updates_everything(train_by_fork: Train, runtime: Path) -> None:
    run = train_by_fork(
        f"""
        sys.path.insert(0, {str(runtime / "python")!r})
        from paceline import optim
        from paceline.optim import _report
        a, b = small(), small()
        pair = [(a, optim.SGD(a.parameters(), lr=0.1)), (b, torch.optim.SGD(b.parameters(), lr=0.1))]
        for model, optimizer in pair:
            loss_of(model, (torch.ones(2, 4), torch.ones(2))).backward()
            optimizer.step()
        assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters()))
        print(*_report.lines())
        """,
        PACELINE_DISABLE="1",
        PACELINE_LIBRARY="/nowhere/libpaceline.so",
    )
    assert run.code == 0 and "4 by PyTorch (OSError: /nowhere/libpaceline.so" in run.output, (
        run.output
    )


def test_a_module_moved_between_steps_is_followed() -> None:
    model = nn.Linear(3, 3)
    optimizer = optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()  # as a move to another device and back does
    expected = [parameter.detach() - 1.9 for parameter in model.parameters()]
    optimizer.step()
    assert all(torch.allclose(p, e, atol=1e-6) for p, e in zip(model.parameters(), expected))
