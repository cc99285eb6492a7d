# SPDX-License-Identifier: Apache-2.0
"""torch.compile as a change that is switched at steps' ends. The backend is aot_eager: what is tested
here is what surrounds the compiler, not its code.
"""

from __future__ import annotations

import copy
import os
import pickle
import sys
from collections.abc import Iterator
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
from paceline._core import machine  # noqa: E402
from paceline.tune import _compile, _room, _roots  # noqa: E402

can_compile = pytest.mark.skipif(
    bool(_compile.why_never()), reason="this PyTorch has no nn.Module.compile"
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.0)

    def forward(self, x: Any) -> Any:
        return {"out": self.drop(self.inner(x)).relu()}


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> Iterator[_compile.Compile]:
    monkeypatch.setattr(_compile, "BACKEND", "aot_eager")
    monkeypatch.setattr(_compile, "why_no_compiler", lambda device: "")
    monkeypatch.setattr(_room, "why_not", lambda proved: "")
    one = _compile.Compile()
    yield one
    one.drop()


def step(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    model(x)["out"].sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    return torch.cat([each.flatten() for each in gradients if each is not None])


def observed(change: _compile.Compile, model: nn.Module) -> str:
    change.observe()
    step(model, torch.ones(2, 4))
    return change.why_not()


@can_compile
def test_a_compiled_model_computes_the_same_and_stays_itself(change: _compile.Compile) -> None:
    torch.manual_seed(0)
    model, x = Net(), torch.randn(8, 4)
    eager, keys = step(model, x), list(model.state_dict())
    assert observed(change, model) == ""
    for on in (True, False, True):
        change.use(on)
        assert torch.allclose(step(model, x), eager)
        assert (model._compiled_call_impl is not None) is on
        assert type(model) is Net
        assert list(model.state_dict()) == keys
    assert "Net: " in change.about()
    change.drop()
    assert model._compiled_call_impl is None


@can_compile
def test_switching_compiles_nothing_anew(change: _compile.Compile) -> None:
    from torch._dynamo.utils import counters

    model, x = Net(), torch.randn(8, 4)
    assert observed(change, model) == ""
    change.use(True)
    step(model, x)
    graphs = counters["stats"]["unique_graphs"]
    for on in (False, True, False, True):
        change.use(on)
        step(model, x)
    assert counters["stats"]["unique_graphs"] == graphs


@can_compile
def test_evaluation_stays_eager(change: _compile.Compile) -> None:
    from torch._dynamo.utils import counters

    model, x = Net(), torch.randn(8, 4)
    assert observed(change, model) == ""
    change.use(True)
    step(model, x)
    graphs = counters["stats"]["unique_graphs"]
    model.eval()
    with torch.no_grad():
        model(x)
    model.train()
    with torch.no_grad():
        model(x)
    assert counters["stats"]["unique_graphs"] == graphs


@can_compile
def test_a_hook_that_is_set_later_is_called(change: _compile.Compile) -> None:
    model, x, calls = Net(), torch.randn(8, 4), []
    assert observed(change, model) == ""
    change.use(True)
    step(model, x)
    model.inner.register_forward_hook(lambda *_: calls.append(1))
    step(model, x)
    assert calls


@can_compile
def test_an_error_of_the_compiler_leaves_the_model_eager(
    change: _compile.Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = Net(), torch.randn(8, 4)
    eager = step(model, x)
    assert observed(change, model) == ""

    def broken(self: Any, graph: Any, inputs: Any, **_: Any) -> Any:
        raise RuntimeError("no code for this")

    monkeypatch.setattr(_compile.Compile, "_backend", broken)
    change.use(True)
    assert torch.allclose(step(model, x), eager)


class Wrapper(nn.Module):
    """Hands attributes on to the module inside it, as Lightning Fabric's does."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: Any) -> Any:
        return self.inside(x)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "inside" and "inside" in self.__dict__.get("_modules", ()):
            setattr(self.inside, name, value)
        super().__setattr__(name, value)


@can_compile
def test_a_wrapper_that_hands_attributes_on_is_compiled_once(change: _compile.Compile) -> None:
    model, x = Wrapper(Net()), torch.randn(8, 4)
    eager = step(model, x)
    assert observed(change, model) == ""
    change.use(True)
    assert torch.allclose(step(model, x), eager)
    assert not change.failed and model._compiled_call_impl is not None
    change.use(False)
    assert model._compiled_call_impl is None
    assert model.inside._compiled_call_impl is None


@can_compile
def test_a_recursion_that_only_the_compiled_way_has_leaves_the_model_eager(
    change: _compile.Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = Net(), torch.randn(8, 4)
    eager = step(model, x)
    assert observed(change, model) == ""
    change.use(True)

    def endless(*_: Any) -> Any:
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr(model._compiled_call_impl, "_compiled", endless)
    assert torch.allclose(step(model, x), eager)
    assert change.failed.startswith("RecursionError")


@can_compile
def test_a_failure_leaves_the_rest_of_the_step_as_it_began(
    change: _compile.Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpointed activations are computed again as they were computed first."""
    first, second, x = Net(), Net(), torch.randn(8, 4)
    change.observe()
    step(first, x)
    step(second, x)
    assert change.why_not() == ""
    change.use(True)

    def endless(*_: Any) -> Any:
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr(second._compiled_call_impl, "_compiled", endless)
    step(first, x)
    step(second, x)
    assert change.failed and first._compiled_call_impl is not None
    change.use(True)  # the tuner's, at the end of the step
    assert first._compiled_call_impl is None and second._compiled_call_impl is None


def test_a_model_under_reentrant_checkpointing_is_left_eager(change: _compile.Compile) -> None:
    from torch.utils.checkpoint import checkpoint

    model, x = Net(), torch.randn(8, 4, requires_grad=True)
    change.observe()
    checkpoint(lambda y: model(y)["out"], x, use_reentrant=True).sum().backward()
    step(model, x)
    assert "without gradients first" in change.why_not()


@can_compile
def test_an_error_of_the_program_stays_the_programs(change: _compile.Compile) -> None:
    class Strict(Net):
        def forward(self, x: Any) -> Any:
            if x.shape[0] == 3:
                raise ValueError("a batch of 3")
            return super().forward(x)

    model = Strict()
    assert observed(change, model) == ""
    change.use(True)
    step(model, torch.ones(2, 4))
    with pytest.raises(ValueError, match="a batch of 3"):
        step(model, torch.ones(3, 4))
    assert not change.failed


@can_compile
def test_a_graph_may_be_differentiated_again(change: _compile.Compile) -> None:
    model, x = Net(), torch.randn(8, 4)
    assert observed(change, model) == ""
    change.use(True)
    loss = model(x)["out"].sum()
    loss.backward(retain_graph=True)
    loss.backward()


@can_compile
def test_settings_of_the_compiler_are_put_back(change: _compile.Compile) -> None:
    import torch._dynamo

    before = torch._dynamo.config.suppress_errors
    model = Net()
    assert observed(change, model) == ""
    change.use(True)
    assert torch._dynamo.config.suppress_errors
    change.drop()
    assert torch._dynamo.config.suppress_errors is before


@can_compile
def test_copies_and_pickled_models_are_eager(change: _compile.Compile) -> None:
    class Careless(Net):
        def __getstate__(self) -> Any:
            return dict(self.__dict__)

    for model in (Net(), Careless()):
        one = _compile.Compile()
        assert observed(one, model) == ""
        one.use(True)
        step(model, torch.ones(2, 4))
        twin = copy.deepcopy(model)
        assert twin.__dict__.get("_compiled_call_impl") is None
        assert model.__dict__["_compiled_call_impl"] is not None
        step(twin, torch.ones(2, 4))
        pickle.dumps(model.__dict__["_compiled_call_impl"])
        one.drop()


def test_nothing_is_tried_without_memory_or_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = machine.Machine(processors=2.0, memory=5 << 30, process=0)
    monkeypatch.setattr(machine, "seen", lambda: seen)
    monkeypatch.setenv("PACELINE_ATTEMPT", "0")
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    assert _room.why_not() == ""
    seen = seen._replace(memory=2 << 30)
    assert _room.why_not() == "2.0 GiB of memory are left to this rank; a trial wants 3"
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")  # the launcher says so to several ranks
    assert "the job has restarted" not in _room.why_not()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert "the job has restarted" in _room.why_not()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    monkeypatch.setenv("PACELINE_ATTEMPT", "1")
    assert "the job has restarted" in _room.why_not()
    seen = seen._replace(memory=5 << 30)
    assert "the job has restarted" in _room.why_not()
    assert _room.why_not(proved=True) == "", "it is known to pass"


@can_compile
def test_which_models_are_left_eager(change: _compile.Compile) -> None:
    class Calls(Net):
        def __call__(self, *args: Any) -> Any:
            return super().__call__(*args)

    own = Net()
    own.compile(backend="eager")
    assert _compile.why_not(own) == "the program compiles it itself"
    assert _compile.why_not(nn.Sequential(torch.jit.script(nn.Linear(2, 2)))).endswith(
        "in it is TorchScript"
    )
    assert "replaces __call__" in _compile.why_not(Calls())
    assert _compile.why_not(nn.DataParallel(Net())) == "DataParallel cannot be compiled"
    assert _compile.why_not(Net().to("meta")) == ""  # why_no_compiler stands for the device


def test_devices_and_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    assert "no C++ compiler: install g++" in _compile.why_no_compiler("cpu")
    assert _compile.why_no_compiler("xpu") == "its parameters are on xpu"


def test_the_modules_that_a_program_calls_itself_are_found() -> None:
    generator, judge, unused = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 1)), nn.Linear(2, 2)
    frozen = nn.Linear(2, 2).requires_grad_(False)
    watch = _roots.Roots()
    watch.begin()
    judge(generator(frozen(torch.ones(1, 2)))).sum().backward()
    judge[0](torch.ones(1, 2))  # a part that is also called by itself
    unused.eval()
    unused(torch.ones(1, 2))
    assert watch.end() == [generator, judge]
    assert not watch.differentiates_twice
    assert not torch.nn.modules.module._global_forward_pre_hooks
    assert not torch.nn.modules.module._global_forward_hooks


def test_a_part_that_is_called_before_its_whole_is_no_root() -> None:
    whole = nn.Sequential(nn.Linear(2, 2))
    watch = _roots.Roots()
    watch.begin()
    whole[0](torch.ones(1, 2))
    whole(torch.ones(1, 2))
    assert watch.end() == [whole]


def test_a_second_differentiation_is_seen() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    watch = _roots.Roots()
    watch.begin()
    x = torch.ones(1, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    gradient.norm().backward()
    watch.end()
    assert watch.differentiates_twice


PROGRAM = """
model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    optimizer.zero_grad()
    loss_of(model, (torch.ones(2, 4), torch.ones(2))).backward()
    optimizer.step()
import paceline
print(paceline.explain())
"""


@pytest.mark.parametrize(
    ("numerics", "said"),
    [
        (
            "Bitwise",
            "off (PACELINE_NUMERICS is Bitwise, and compiled models are of class Reordered)",
        ),
        ("Reordered", "left as it is: there is no C++ compiler"),
    ],
)
def test_a_program_is_told_why_nothing_is_compiled(
    train_by_fork: Train, numerics: str, said: str
) -> None:
    done = train_by_fork(
        PROGRAM,
        PACELINE_COMPILE="Auto",
        PACELINE_TUNE_AFTER="0",
        PACELINE_NUMERICS=numerics,
        PATH="/nowhere",
    )
    assert done.code == 0, done.output
    if _compile.why_never():
        said = "has no torch.nn.Module.compile" if numerics != "Bitwise" else said
    assert said in done.output, done.output
