# SPDX-License-Identifier: Apache-2.0
"""paceline.graph on the CPU. A backend that keeps the step as a function stands for the device. So
the code that decides about captures, and that copies before a replay, is the code that runs on a
GPU. tests/gpu tests real graphs.
"""

from __future__ import annotations

import _thread
import contextlib
import itertools
import os
import sys
import time
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
import paceline  # noqa: E402 - where it lies is known only now
from paceline import graph, optim  # noqa: E402
from paceline.graph import (  # noqa: E402
    Refused,
    WholeStep,
    _watch,
)
from paceline.graph._cuda import Cuda  # noqa: E402

torch.set_num_threads(1)


class Kept:
    """In the place of a GPU: a capture runs nothing, and a replay runs the step on the capture's
    tensors.
    """

    type = "cpu"

    def __init__(self) -> None:
        self.captures = self.replays = self.beside_made = 0
        self.error: Exception | None = None

    def missing(self) -> str:
        return ""

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        self.beside_made += 1
        yield

    def capture(self, run: Callable[[], Any]) -> Callable[[], Any]:
        self.captures += 1
        if self.error is not None:
            raise self.error

        def replay() -> Any:
            self.replays += 1
            return run()

        return replay


def model_of() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))


class Training:
    """A usual step, and what the tests change in it."""

    def __init__(self, kind: Any = torch.optim.SGD, **options: Any) -> None:
        self.model = model_of()
        self.optimizer = kind(self.model.parameters(), **{"lr": 0.05, **options})
        self.extra: Callable[[torch.Tensor], Any] = lambda loss: loss

    def __call__(self, batch: dict[str, torch.Tensor], scale: float = 1.0) -> Any:
        self.optimizer.zero_grad()
        loss = ((self.model(batch["x"])[:, 0] - batch["y"]) ** 2).mean() * scale
        loss = self.extra(loss)
        loss.backward()
        self.optimizer.step()
        return {"loss": loss.detach()}


def batch_of(number: int, size: int = 6) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    return {
        "x": torch.randn(size, 4, generator=generator),
        "y": torch.randn(size, generator=generator),
    }


def wrapped(training: Training, **options: Any) -> tuple[WholeStep, Kept]:
    backend = Kept()
    return (
        WholeStep(
            training, model=training.model, optimizer=training.optimizer, backend=backend, **options
        ),
        backend,
    )


@pytest.mark.parametrize("kind", [torch.optim.SGD, optim.SGD, optim.AdamW])
def test_steps_are_those_of_the_function(kind: Any) -> None:
    theirs, ours = Training(kind), Training(kind)
    step, backend = wrapped(ours)
    for number in range(9):
        given = batch_of(number)
        before = {name: value.clone() for name, value in given.items()}
        expected, got = theirs(batch_of(number)), step(given)
        assert torch.equal(expected["loss"], got["loss"]), number
        assert step.is_captured == (number >= 3)
        assert all(torch.equal(given[name], before[name]) for name in given), (
            "the program's batch is its own"
        )
    assert (backend.beside_made, backend.captures, backend.replays) == (3, 1, 6)
    for one, other in zip(theirs.model.state_dict().values(), ours.model.state_dict().values()):
        assert torch.equal(one, other)
    told = paceline.explain(as_dict=True)["CUDA graphs"]
    assert told["state"] == "on" and told["numerics"] == "Bitwise" and "Training" in told["reason"]


def refused(step: WholeStep, *args: Any, **options: Any) -> str:
    """What is said; and nothing of the step has happened."""
    model = step._model
    assert model is not None
    before = [value.clone() for value in model.state_dict().values()]
    with pytest.raises(Refused) as raised:
        step(*args, **options)
    assert all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values()))
    assert str(raised.value).startswith("paceline.graph: ")
    return str(raised.value)


def ready(training: Training | None = None, **options: Any) -> tuple[WholeStep, Training]:
    training = training or Training(**options)
    step, _ = wrapped(training)
    for number in range(4):
        step(batch_of(number))
    assert step.is_captured
    return step, training


def test_inputs_that_change_are_named() -> None:
    step, _ = ready()
    said = refused(step, batch_of(9, size=5))
    assert (
        "input 0['x'] was (6, 4) of float32 on cpu" in said
        and "and is (5, 4)" in said
        and "drop_last=True" in said
    )
    given = batch_of(9)
    assert "and is (6, 4) of float64" in refused(step, {**given, "x": given["x"].double()})
    assert "strides (1, 6)" in refused(step, {**given, "x": given["x"].t().contiguous().t()})
    assert "input 0 was" in refused(step, {"x": given["x"]}) and "pass a tensor" in refused(
        step, {"x": given["x"]}
    )
    assert "input 0 was" in refused(step, {"y": given["y"], "x": given["x"]})
    said = refused(step, given, scale=2.0)
    assert "input scale" in said
    step(given)  # what fits goes on


def test_a_python_number_is_a_part_of_the_capture() -> None:
    training = Training()
    step, _ = wrapped(training)
    for number in range(4):
        step(batch_of(number), 0.5)
    said = refused(step, batch_of(4), 0.25)
    assert "input 1 was 0.5 and is 0.25" in said and "pass a tensor on the device" in said
    step.recapture()
    for number in range(4):
        step(batch_of(number), 0.25)
    assert step.is_captured


def change_lr(training: Training) -> None:
    training.optimizer.param_groups[0]["lr"] *= 0.5


def replace(training: Training) -> None:
    training.model[3] = nn.Linear(8, 1)


def move(training: Training) -> None:
    weight = training.model[0].weight
    weight.data = weight.data.clone()


def freeze(training: Training) -> None:
    training.model[3].bias.requires_grad_(False)


def add_group(training: Training) -> None:
    training.optimizer.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})


@pytest.mark.parametrize(
    "change,said",
    [
        (
            change_lr,
            (
                "lr of SGD's group 0 was 0.05 and is 0.025: a captured step repeats the number that"
                " it saw: give a tensor"
            ),
        ),
        (lambda training: training.model.eval(), "the model's training flags"),
        (replace, "parameter 3.weight was"),
        (move, "parameter 0.weight was"),
        (freeze, "parameter 3.bias was"),
        (add_group, "SGD's group 1 is new: call recapture()"),
    ],
)
def test_what_a_capture_takes_for_granted_is_watched(
    change: Callable[[Training], Any], said: str
) -> None:
    step, training = ready()
    change(training)
    text = refused(step, batch_of(5))
    assert said in text, text
    assert "recapture()" in text


def test_the_state_may_be_loaded_in_place_and_gradients_modes_count() -> None:
    step, training = ready()
    training.model.load_state_dict(model_of().state_dict())
    step(batch_of(1))
    with torch.no_grad():
        assert "torch.is_grad_enabled() was True and is False" in refused(step, batch_of(1))


def reads(loss: torch.Tensor) -> torch.Tensor:
    return loss.clone() if loss.item() > -1 else loss


def masks(loss: torch.Tensor) -> torch.Tensor:
    values = torch.arange(5.0)
    return loss + values[values > 2].sum() * 0


def sizes(loss: torch.Tensor) -> torch.Tensor:
    return loss + torch.nonzero(torch.ones(3)).sum() * 0


@pytest.mark.parametrize(
    "extra,said",
    [
        (
            reads,
            (
                "_local_scalar_dense.default at {file}:{line} reads a value on the host (.item(),"
                " float(), bool(), print"
            ),
        ),
        (masks, "index.Tensor at {file}:{line} picks by a mask"),
        (sizes, "nonzero.default at {file}:{line} makes a tensor whose size depends on values"),
    ],
)
def test_what_needs_the_host_is_told_with_its_line(extra: Any, said: str) -> None:
    training = Training()
    training.extra = extra
    step, backend = wrapped(training)
    line = extra.__code__.co_firstlineno + (1 if extra is not masks else 2)
    for number in range(2):  # the second one is looked at
        step(batch_of(number))
    text = refused(step, batch_of(3))
    assert said.format(file=__file__, line=line) in text and "outside of the step" in text, text
    assert backend.captures == 0
    training(batch_of(3))  # the way that the program goes on
    training.extra = lambda loss: loss
    step.recapture()
    for number in range(4):
        step(batch_of(number))
    assert step.is_captured


def turns() -> Callable[[torch.Tensor], torch.Tensor]:
    made = iter(range(100))
    return lambda loss: loss.abs() if next(made) % 2 else loss.relu()


def more() -> Callable[[torch.Tensor], torch.Tensor]:
    made = iter(range(100))

    def work(loss: torch.Tensor) -> torch.Tensor:
        for _ in range(next(made)):
            loss = loss.mul(1.0)
        return loss

    return work


def numbers() -> Callable[[torch.Tensor], torch.Tensor]:
    made = iter(range(1, 100))
    return lambda loss: loss.mul(0.5 ** next(made))


def shapes() -> Callable[[torch.Tensor], torch.Tensor]:
    made = iter(range(1, 100))
    return lambda loss: loss + loss.detach().reshape(1).repeat(5)[: next(made)].mean() * 0


@pytest.mark.parametrize(
    "extra,said",
    [
        (turns, "the step's path changed: it called"),
        (more, "the step's path changed: it"),
        (numbers, "was given 0.25 and then 0.125: a captured step repeats the number that it saw"),
        (shapes, "and then"),
    ],
)
def test_a_step_that_is_another_one_next_time_is_refused(extra: Any, said: str) -> None:
    training = Training()
    training.extra = extra()
    step, backend = wrapped(training)
    for number in range(3):
        step(batch_of(number))
    text = refused(step, batch_of(3))
    assert said in text and __file__ in text, text
    assert backend.captures == 0


def test_an_optimizer_that_counts_on_the_host_is_seen() -> None:
    """PyTorch's Adam reads its step count, and computes its corrections of it."""
    training = Training(torch.optim.Adam)
    step, _ = wrapped(training)
    for number in range(2):
        step(batch_of(number))
    text = refused(step, batch_of(3))
    assert "reads a value on the host" in text and __file__ in text, text


def test_shapes_that_change_while_it_warms_up_are_refused_by_the_next_call() -> None:
    training = Training()
    step, _ = wrapped(training)
    step(batch_of(0))
    step(batch_of(1, size=5))  # made, as the program wanted
    assert "input 0['x'] was (6, 4)" in refused(step, batch_of(2))


def test_a_capture_that_fails_has_made_no_step() -> None:
    training = Training()
    step, backend = wrapped(training)
    for number in range(3):
        step(batch_of(number))
    backend.error = RuntimeError("operation not permitted when stream is capturing")
    for _ in range(2):
        assert "could not be captured: RuntimeError: operation not permitted" in refused(
            step, batch_of(3)
        )
    assert backend.captures == 1 and all(p.grad is None for p in training.model.parameters())
    backend.error = None
    step.recapture()
    for number in range(4):
        step(batch_of(number))
    assert step.is_captured


@pytest.mark.parametrize(
    "name,fails",
    [
        ("_cuda_endAllocateToPool", ""),
        ("_cuda_endAllocateCurrentStreamToPool", ""),
        ("_cuda_endAllocateToPool", "release"),
        ("_cuda_endAllocateToPool", "recovery"),
    ],
)
def test_a_capture_that_the_driver_refuses_leaves_nothing_behind(
    name: str, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch leaves the thread in the capture's stream, its pool open, and its generator unusable
    until another capture has ended. Where that fails too, what is told is still why the first one
    did.
    """
    streams, pools, made, ended = ["the program's"], [], [], []

    class Capture:
        def __init__(self, graph: Any, *, pool: Any, stream: Any) -> None:
            made.append(graph)
            pools.append(pool)

        def __enter__(self) -> None:
            streams.append("the capture's")

        def __exit__(self, *_: object) -> None:
            if len(made) == 1:
                raise RuntimeError("operation failed due to a previous error during capture")
            if fails == "recovery":
                raise RuntimeError("an illegal memory access was encountered")
            ended.append(made[-1])
            pools.pop()
            streams.pop()

    def end(device: int, pool: Any) -> None:
        assert device == 0
        pools.remove(pool)

    for other in {"_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool"} - {name}:
        monkeypatch.delattr(torch._C, other, raising=False)
    released: list[Any] = []

    def release(_: int, pool: Any) -> None:
        released.append(pool)
        if fails == "release":
            raise RuntimeError("this pool is none")

    monkeypatch.setattr(torch._C, name, end, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", release, raising=False)
    monkeypatch.setattr(torch.cuda, "graph", Capture)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: streams[-1])
    monkeypatch.setattr(torch.cuda, "set_stream", streams.append)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    device = Cuda()
    device.type = "cpu"
    with pytest.raises(RuntimeError, match="previous error during capture"):
        device.capture(lambda: None)
    assert len(made) == 2 and len(released) == 1
    if fails != "recovery":
        assert streams[-1] == "the program's" and not pools and ended == [made[1]]


def test_an_operation_that_no_python_called_has_a_line() -> None:
    """As in autograd's own threads, which call the mode alone."""
    said: list[str] = []
    _thread.start_new_thread(said.extend, (itertools.islice(iter(_watch._line, None), 1),))
    end = time.monotonic() + 10
    while not said and time.monotonic() < end:
        time.sleep(0.001)
    assert said == ["the backward pass"]


def test_without_a_gpu_it_says_so() -> None:
    training = Training()
    step = WholeStep(training, model=training.model, optimizer=training.optimizer)
    if not torch.cuda.is_available():
        assert "PyTorch sees no GPU here" in refused(step, batch_of(0))
    step._backend.missing = lambda: ""  # type: ignore[method-assign]
    assert "input 0['x'] is on cpu: move it to the GPU before the step" in refused(
        step, batch_of(0)
    )
    training = Training(torch.optim.Adam)
    step = WholeStep(lambda: None, model=training.model, optimizer=training.optimizer)
    step._backend.missing = lambda: ""  # type: ignore[method-assign]
    assert "Adam counts its steps on the host (capturable=False): pass capturable=True" in refused(
        step
    )


def test_wrong_arguments_are_named() -> None:
    model = model_of()
    for arguments, options, error, said in (
        ((3,), {}, TypeError, "function is int"),
        ((print,), {"model": 3}, TypeError, "model is int"),
        ((print,), {"model": model, "optimizer": [3]}, TypeError, "optimizer is int"),
        ((print,), {"warmup": 1}, ValueError, "warmup is 1: it must be at least 2"),
    ):
        with pytest.raises(error, match=said):
            WholeStep(*arguments, **options)
    assert graph.__all__ == ["Refused", "WholeStep"]


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="a PyTorch without torch.compile")
@pytest.mark.parametrize("whole", [False, True])
def test_what_torch_compile_has_made_is_captured_too(whole: bool) -> None:
    """Of the model, or of the step."""
    compiled: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    theirs, ours, device = Training(), Training(), Kept()
    function: Callable[..., Any] = ours
    if whole:
        function = torch.compile(lambda batch: ours(batch), backend=backend)
    else:
        ours.model = torch.compile(ours.model, backend=backend)
    step = WholeStep(function, model=ours.model, optimizer=ours.optimizer, backend=device)
    for number in range(6):
        assert torch.equal(step(batch_of(number))["loss"], theirs(batch_of(number))["loss"]), number
    assert step.is_captured and device.replays == 3 and compiled
    for one, other in zip(theirs.model.state_dict().values(), ours.model.state_dict().values()):
        assert torch.equal(one, other)
