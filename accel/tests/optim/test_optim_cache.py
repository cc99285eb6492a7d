# SPDX-License-Identifier: Apache-2.0
"""On the CPU a table serves step after step. Whatever a program changes between two of them, the
next is what a table made anew would have made it.
"""

from __future__ import annotations

import copy
import gc
import os
import random
import sys
import weakref
from collections.abc import Callable
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
from paceline.optim import _host, _layouts, _native, _report  # noqa: E402

torch.set_num_threads(1)  # tensors are small here, and waiting threads of torch's spin

KINDS: dict[str, Callable[..., Any]] = {
    "AdamW": lambda params, kind: kind("AdamW")(params, lr=0.1),
    "AdamW clipped": lambda params, kind: kind("AdamW")(params, lr=0.1, max_grad_norm=0.5),
    "Adam amsgrad": lambda params, kind: kind("Adam")(params, lr=0.1, amsgrad=True),
    "SGD": lambda params, kind: kind("SGD")(params, lr=0.1),
    "SGD momentum": lambda params, kind: kind("SGD")(params, lr=0.1, momentum=0.9, dampening=0.3),
    "LAMB": lambda params, kind: kind("LAMB")(params),
    "LARS": lambda params, kind: kind("LARS")(params, lr=0.1),
}


@pytest.fixture(autouse=True, params=["newest", "asked"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As PyTorch tells where tensors lie, and as releases before 2.10 do."""
    if request.param == "asked":
        monkeypatch.setattr(_layouts, "exchange", lambda: None)


class Watched:
    """Tells whether the last step made a new table."""

    made = False

    def _tabulate(self) -> Any:
        self.made = True
        return super()._tabulate()


def cached(name: str) -> Any:
    return type(name, (Watched, getattr(optim, name)), {})


def anew(name: str) -> Any:
    """The same class, whose tables serve one step."""
    return type(name, (getattr(optim, name),), {"_cached": lambda self, table: None})


def leaves(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(4)
    made = [torch.randn(shape) for shape in [(6, 6), (901,), (0, 5), (), (3, 1)]]
    made.append(torch.randn(2, 3, 5, 7).to(memory_format=torch.channels_last))
    return [tensor.to(dtype).requires_grad_() for tensor in made]


def give(params: list[torch.Tensor], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in params:
        parameter.grad = torch.empty_like(parameter, requires_grad=False).copy_(
            torch.randn(parameter.shape, generator=generator)
        )


def compare(one: Any, other: Any) -> None:
    pairs = [
        (p, q)
        for first, second in zip(one.param_groups, other.param_groups)
        for p, q in zip(first["params"], second["params"])
    ]
    for p, q in pairs:
        assert torch.equal(p, q)
        a, b = one.state.get(p, {}), other.state.get(q, {})
        assert list(a) == list(b)
        for key in a:
            assert a[key] is None or torch.equal(a[key], b[key]), key


Change = Callable[[list[torch.Tensor], Any], None]


class Pair:
    """Two runs of the same steps: one whose tables are cached, and one whose are not."""

    def __init__(self, kind: str, dtype: torch.dtype = torch.float32) -> None:
        self.runs = [
            (params, KINDS[kind](params, of))
            for params, of in ((leaves(dtype), cached), (leaves(dtype), anew))
        ]
        self.number = 0

    def step(self, change: Change | None = None) -> bool:
        """Whether a cached table served."""
        self.number += 1
        for params, optimizer in self.runs:
            give(params, self.number)
            if change:
                change(params, optimizer)
            optimizer.made = False
            optimizer.step()
        one, other = (optimizer for _, optimizer in self.runs)
        compare(one, other)
        assert _report.outcome_of(one).fused == _report.outcome_of(other).fused > 0
        assert other._host_table is None
        return not one.made


def write(params: list[torch.Tensor], optimizer: Any) -> None:
    with torch.no_grad():
        params[0].add_(0.25)


def move(params: list[torch.Tensor], optimizer: Any) -> None:
    params[0].data = params[0].data.clone()


def transpose(params: list[torch.Tensor], optimizer: Any) -> None:
    params[0].data = params[0].data.t()


def negate(params: list[torch.Tensor], optimizer: Any) -> None:
    params[1].data = torch._neg_view(params[1].data)


def other_parameter(params: list[torch.Tensor], optimizer: Any) -> None:
    other = torch.full((901,), 0.5, dtype=params[1].dtype, requires_grad=True)
    other.grad = torch.ones_like(other)
    optimizer.param_groups[0]["params"][1] = other


def another_group(params: list[torch.Tensor], optimizer: Any) -> None:
    more = torch.full((7,), 0.5, dtype=params[1].dtype, requires_grad=True)
    more.grad = torch.ones_like(more)
    optimizer.add_param_group({"params": [more], "lr": 0.3})


def fewer_gradients(params: list[torch.Tensor], optimizer: Any) -> None:
    params[1].grad = None


def transposed_gradient(params: list[torch.Tensor], optimizer: Any) -> None:
    params[0].grad = params[0].grad.t().contiguous().t()


def negated_gradient(params: list[torch.Tensor], optimizer: Any) -> None:
    params[0].grad = torch._neg_view(params[0].grad)


def reload(params: list[torch.Tensor], optimizer: Any) -> None:
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def move_state(params: list[torch.Tensor], optimizer: Any) -> None:
    for state in optimizer.state.values():
        for value in filter(torch.is_tensor, state.values()):
            value.data = value.data.clone()


def replace_state(params: list[torch.Tensor], optimizer: Any) -> None:
    state = optimizer.state[params[1]]
    for key in [key for key, value in state.items() if torch.is_tensor(value)]:
        state[key] = state[key].clone() + 1


def exchange_memory(params: list[torch.Tensor], optimizer: Any) -> None:
    """While the program keeps what the state had."""
    for value in filter(torch.is_tensor, optimizer.state[params[1]].values()):
        value.set_(value.detach().clone())


def clear(params: list[torch.Tensor], optimizer: Any) -> None:
    optimizer.state.clear()


def forget(params: list[torch.Tensor], optimizer: Any) -> None:
    optimizer.state.pop(params[0], None)


def without_masters(params: list[torch.Tensor], optimizer: Any) -> None:
    optimizer.master_weights = False


ALWAYS = [
    move,
    transpose,
    negate,
    other_parameter,
    another_group,
    fewer_gradients,
    transposed_gradient,
]
OF_STATE = [reload, move_state, replace_state, clear, forget]


@pytest.mark.parametrize("kind", list(KINDS))
def test_what_a_program_changes_is_seen(kind: str) -> None:
    for change in ALWAYS + ([] if kind == "SGD" else OF_STATE):
        pair = Pair(kind)
        # The first step of momentum is another than those after it.
        served = [pair.step() for _ in range(4)]
        assert served == [False, kind not in ("SGD momentum", "LARS"), True, True], change
        assert not pair.step(change), change
        for _ in range(4):
            pair.step()


@pytest.mark.parametrize("seed", range(8))
def test_any_changes_in_any_order_are_seen(seed: int) -> None:
    chosen = random.Random(seed)
    kind = chosen.choice(list(KINDS))
    dtype = chosen.choice([torch.float32, torch.bfloat16])
    pair = Pair(kind, dtype)
    changes = [*ALWAYS, write, *([] if kind == "SGD" else [exchange_memory, *OF_STATE])]
    changes.remove(other_parameter)  # the old one's state stays, and PyTorch cannot save that
    if dtype is torch.bfloat16:
        changes.remove(negate)  # such a parameter is PyTorch's to update, and has no master there
    for _ in range(40):
        change = chosen.choice([None, chosen.choice(changes)])
        try:
            pair.step(change)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {pair.number}, {change}: {error}") from error


def test_state_that_is_transposed_in_place_is_seen() -> None:
    if _layouts.exchange() is None:
        pytest.skip("PyTorch is asked for addresses and sizes only")

    def transpose_state(params: list[torch.Tensor], optimizer: Any) -> None:
        optimizer.state[params[0]]["exp_avg"].t_()

    pair = Pair("AdamW")
    assert [pair.step() for _ in range(3)] == [False, True, True]
    assert not pair.step(transpose_state)
    pair.step()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_masters_are_those_of_what_the_program_wrote(dtype: torch.dtype) -> None:
    pair = Pair("AdamW", dtype)
    assert [pair.step() for _ in range(3)] == [False, True, True]
    for change in (write, without_masters):
        assert not pair.step(change), change
        assert pair.step(), change


def test_groups_are_read_as_they_are_now() -> None:
    pair = Pair("AdamW")
    rate = torch.tensor(0.5)
    asked: list[dict[str, Any]] = [
        {"lr": 0.7},
        {"lr": rate},
        {"betas": (0.5, 0.6)},
        {"maximize": True},
        {"eps": 1.0},
    ]
    pair.step()
    for values in asked:
        served = pair.step(
            lambda params, optimizer, values=values: optimizer.param_groups[0].update(values)
        )
        assert served, values
    assert pair.step(lambda params, optimizer: rate.fill_(0.25) and None)
    assert not pair.step(
        lambda params, optimizer: optimizer.param_groups[0].update(lr=0.1, amsgrad=True)
    )


def test_a_group_of_which_nothing_has_a_gradient_is_no_row_of_others() -> None:
    pair = Pair("AdamW")
    for params, optimizer in pair.runs:
        own = optimizer.param_groups[0]
        own["params"], rest = params[:1], params[1:]
        optimizer.add_param_group({"params": rest, "lr": 0.3})

    def only_the_second(params: list[torch.Tensor], optimizer: Any) -> None:
        params[0].grad = None

    for _ in range(4):
        pair.step(only_the_second)


def test_gradients_may_be_scaled_and_not_finite() -> None:
    pair = Pair("AdamW clipped")

    def scale(params: list[torch.Tensor], optimizer: Any) -> None:
        optimizer.grad_scale = torch.tensor(8.0)

    def infinite(params: list[torch.Tensor], optimizer: Any) -> None:
        optimizer.found_inf = torch.tensor(1.0)

    def finite(params: list[torch.Tensor], optimizer: Any) -> None:
        optimizer.found_inf = torch.tensor(0.0)

    pair.step()
    assert pair.step(scale)
    before = [parameter.detach().clone() for parameter in pair.runs[0][0]]
    pair.step(infinite)
    assert all(map(torch.equal, pair.runs[0][0], before))
    assert pair.step(finite)
    assert not torch.equal(pair.runs[0][0][0], before[0])
    assert pair.runs[0][1].grad_norm == pair.runs[1][1].grad_norm > 0


def test_what_torch_is_asked_for_later_is_torchs() -> None:
    params = leaves()
    optimizer = optim.AdamW(params)
    for number in range(3):
        give(params, number)
        optimizer.step()
    optimizer.param_groups[0]["capturable"] = True
    before = [parameter.detach().clone() for parameter in params]
    try:
        optimizer.step()
    except (AssertionError, RuntimeError):  # how PyTorch takes it on the CPU
        assert all(map(torch.equal, params, before))
    else:
        assert not _report.outcome_of(optimizer).fused


def test_trying_to_cache_a_table_grows_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    original = _host.OwnTable.cached

    def counted(self: Any, optimizer: Any) -> Any:
        tried.append(1)
        return original(self, optimizer)

    monkeypatch.setattr(_host.OwnTable, "cached", counted)
    params = leaves()
    optimizer = optim.AdamW(params)
    for number in range(64):
        give(params, number)
        move(params, optimizer)
        optimizer.step()
    assert len(tried) == 7  # of steps 1, 2, 4, … 64


def test_nothing_is_held_that_the_program_lets_go() -> None:
    params = leaves()
    optimizer = optim.AdamW(params)
    gc.disable()
    try:
        for number in range(3):
            give(params, number)
            optimizer.step()
        assert optimizer._host_table is not None
        gone = weakref.ref(params[0].grad), weakref.ref(optimizer.state[params[0]]["exp_avg"])
        params[0].grad = None
        optimizer.state.clear()
        assert [one() for one in gone] == [None, None]
        gone = weakref.ref(optimizer), weakref.ref(params[0])
        del optimizer, params
        assert [one() for one in gone] == [None, None]
    finally:
        gc.enable()


def test_copies_of_an_optimizer_make_tables_of_their_own() -> None:
    params = leaves()
    optimizer = optim.AdamW(params)
    for number in range(2):
        give(params, number)
        optimizer.step()
    other = copy.deepcopy(optimizer)
    assert other._host_table is None
    theirs = other.param_groups[0]["params"]
    for number in range(2, 4):
        for each, of in ((optimizer, params), (other, theirs)):
            give(of, number)
            each.step()
    compare(optimizer, other)


def test_memory_exchanged_while_the_first_step_is_under_way_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As another thread may, which runs while the library works."""
    params = leaves()
    optimizer = optim.AdamW(params, lr=0.1)
    step = _native.Table.step

    def exchanged(self: Any, *arguments: Any) -> None:
        step(self, *arguments)
        params[1].data = params[1].data.clone()

    with monkeypatch.context() as patch:
        patch.setattr(_native.Table, "step", exchanged)
        give(params, 0)
        optimizer.step()
    before = params[1].detach().clone()
    give(params, 1)
    optimizer.step()
    assert not torch.equal(before, params[1])


def test_a_gradient_of_another_class_is_pytorchs_after_a_table_served_too() -> None:
    class Marked(torch.Tensor):
        pass

    params = leaves()
    optimizer = optim.AdamW(params)
    for number in range(3):
        give(params, number)
        if number == 2:
            params[0].grad = params[0].grad.as_subclass(Marked)
        optimizer.step()
    assert _report.outcome_of(optimizer).elsewhere == {"a gradient of type Marked": 1}


def test_a_skipped_step_keeps_the_table() -> None:
    if not hasattr(torch.amp, "GradScaler"):
        pytest.skip("no scaler for the CPU")
    params = leaves()
    optimizer = cached("AdamW")(params)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(torch.ones(()))
    made = []
    for number in range(6):
        give(params, number)
        if number % 2:
            params[1].grad[0] = float("inf")
        optimizer.made = False
        optimizer.scaled_step(scaler)
        scaler.update()
        made.append(optimizer.made)
    assert made == [True] + [False] * 5


def test_an_optimizer_without_groups_makes_steps_of_nothing() -> None:
    params = leaves()
    optimizer = optim.AdamW(params)
    give(params, 0)
    optimizer.step()
    optimizer.param_groups.clear()
    for _ in range(3):
        optimizer.step()


def test_a_group_that_has_no_gradient_is_not_read() -> None:
    params = leaves()
    optimizer = optim.AdamW([{"params": params[:1]}, {"params": params[1:]}])
    for number in range(3):
        give(params, number)
        if number == 2:
            for parameter in params[:1]:
                parameter.grad = None
            optimizer.param_groups[0]["lr"] = None
        optimizer.step()
