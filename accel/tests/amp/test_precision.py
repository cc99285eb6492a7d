# SPDX-License-Identifier: Apache-2.0
"""spec.acceleration.precision and cudaGraph in the process: unmodified programs against autocast by
hand, what is left as it is and why, and the same through paceline.accelerate.
"""

from __future__ import annotations

import json
import os
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
import paceline  # noqa: E402 - where it lies is known only now
from paceline import amp, graph, optim  # noqa: E402
from paceline.amp import _patch, _report  # noqa: E402
from paceline.graph import WholeStep  # noqa: E402

torch.set_num_threads(1)
O1 = {"PACELINE_PRECISION": "O1", "PACELINE_NUMERICS": "Lossy", "OMP_NUM_THREADS": "1"}
FEATURE = "mixed precision"

# Prints a digest of the weights, then what explain() says. BY_HAND is how a program would write
# what O1 does.
TRAINING = """
        import contextlib, hashlib, json
        by_hand = (lambda: torch.autocast("cpu", dtype=torch.bfloat16)) if BY_HAND else contextlib.nullcontext
        class Branch(nn.Module):
            def __init__(self):
                super().__init__()
                self.deep = nn.Linear(8, 1)
            def forward(self, inputs):
                return {"out": torch.sigmoid(self.deep(inputs)), "rows": [inputs]}
        torch.manual_seed(3)
        first, second, third = nn.Linear(4, 8), Branch(), nn.Linear(8, 1).double()
        criterion = nn.BCELoss()
        optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.5)
        for number in range(6):
            torch.manual_seed(number)
            inputs, labels = torch.randn(16, 4), torch.randint(0, 2, (16, 1)).float()
            optimizer.zero_grad()
            with by_hand():
                hidden = first(inputs)
            hidden = hidden.float()
            assert hidden.dtype is torch.float32
            with by_hand():
                answer = second(hidden)
            assert third(hidden.double()).dtype is torch.float64
            loss = criterion(answer["out"].float(), labels)
            loss.backward()
            optimizer.step()
        weights = torch.cat([p.detach().flatten() for p in (*first.parameters(), *second.parameters())])
        print(hashlib.sha256(weights.numpy().tobytes()).hexdigest())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            print(first(inputs).dtype)
        import paceline
        print(json.dumps(paceline.explain(as_dict=True)))
"""


def trained(train: Train, by_hand: bool, **variables: str) -> tuple[str, dict[str, Any], str]:
    run = train(TRAINING.replace("BY_HAND", str(by_hand)), **variables)
    assert run.code == 0, run.output
    digest, dtype, told = run.output.splitlines()[-3:]
    assert dtype == "torch.bfloat16", "the program's own autocast is the program's"
    return digest, json.loads(told)[FEATURE], run.output


def test_o1_is_autocast_around_models_alone(train_by_fork: Train) -> None:
    plain, told, _ = trained(train_by_fork, False)
    assert told["state"] == "off" and "PACELINE_PRECISION is not set" in told["reason"]
    expected, _, _ = trained(train_by_fork, True)
    got, told, _ = trained(train_by_fork, False, **O1)
    assert got == expected != plain
    assert told["state"] == "on" and told["numerics"] == "Lossy" and "O1" in told["reason"]
    said = {seen["name"].rpartition(".")[2]: seen["text"] for seen in told["seen"]}
    assert said == {
        "Branch": "under torch.autocast in bfloat16",
        "Linear": "as it is written (the program has autocast on)",  # of its last call
    }


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {"PACELINE_PRECISION": "O1"},
            "O1, which is of class Lossy, and PACELINE_NUMERICS is Reordered",
        ),
        ({**O1, "PACELINE_PRECISION": "O3"}, "O3, none of Disabled, TF32, O1, O2"),
        ({**O1, "PACELINE_PRECISION": "O2"}, "paceline.accelerate(model, optimizer, loader)"),
        ({**O1, "PACELINE_DISABLE": "1"}, "PACELINE_DISABLE=1"),
    ],
)
def test_what_is_left_as_it_is_says_why(
    train_by_fork: Train, variables: dict[str, str], said: str
) -> None:
    code = (
        "import paceline; print(nn.Linear(4, 4)(torch.ones(1, 4)).dtype,"
        " nn.Module.__call__.__qualname__)"
    )
    code += f"; print(paceline.explain(as_dict=True)[{FEATURE!r}])"
    run = train_by_fork(code, **variables)
    assert run.code == 0 and "on (" not in run.output and said in run.output, run.output
    assert "_patch.<locals>" not in run.output, "the class is PyTorch's own"


@pytest.mark.skipif(
    not torch.version.cuda,
    reason="TF32 is of PyTorch built with CUDA; else it is off with the reason",
)
def test_tf32_is_pytorchs_own_switch(train_by_fork: Train) -> None:
    code = """
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            print(torch.backends.cuda.matmul.allow_tf32, torch.get_float32_matmul_precision())
        import paceline
        print(paceline.explain())
    """
    run = train_by_fork(code, PACELINE_PRECISION="TF32", PACELINE_NUMERICS="Lossy")
    assert run.code == 0 and run.output.startswith("True high\n"), run.output
    assert f"{FEATURE}: on (float32 products on a GPU" in run.output


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="a PyTorch without torch.compile")
def test_a_compiled_model_is_one_graph_as_before(train_by_fork: Train) -> None:
    run = train_by_fork(
        """
        graphs = []
        def backend(graph, inputs):
            graphs.append(graph)
            return graph.forward
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        inputs = torch.randn(3, 4)
        for _ in range(2):
            answer = compiled(inputs)
        assert answer.dtype is torch.float32 and torch.equal(answer, model(inputs)), answer
        with torch.autocast("cpu", dtype=torch.bfloat16):
            expected = model(inputs)
        assert expected.dtype is torch.bfloat16 and torch.equal(answer, expected.float())
        whole = torch.compile(lambda rows: model(rows).sum(), backend=backend, fullgraph=True)
        whole(inputs)
        print(len(graphs))
        """,
        **O1,
    )
    assert run.code == 0 and run.output.splitlines()[-1] == "2", run.output


# -- through paceline.accelerate
# ------------------------------------------------------------


@pytest.fixture
def put_back() -> Iterator[None]:
    yield
    from paceline.optim import _patch as _optimizers

    _optimizers.uninstall()
    _patch.uninstall()
    _report.switch = "off (PACELINE_PRECISION is not set)"


def model_of() -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(4, 1)


def fitted(model: nn.Module, optimizer: Any) -> torch.Tensor:
    for number in range(4):
        torch.manual_seed(number)
        optimizer.zero_grad()
        model(torch.randn(6, 4)).square().mean().backward()
        optimizer.step()
    return model.weight.detach()


def test_o2_reaches_a_program_that_accelerates(
    monkeypatch: pytest.MonkeyPatch, put_back: None
) -> None:
    expected = fitted(
        *amp.decorate(
            model := model_of(), torch.optim.AdamW(model.parameters(), lr=0.1), level="O2"
        )
    )
    assert expected.dtype is torch.bfloat16
    config: dict[str, Any] = {"numerics": "Lossy", "precision": "O2"}
    for by_job in (False, True):
        if by_job:
            monkeypatch.setenv("PACELINE_NUMERICS", "Lossy")
            monkeypatch.setenv("PACELINE_PRECISION", "O2")
        model = model_of()
        given = torch.optim.AdamW(model.parameters(), lr=0.1)
        same, (optimizer,) = paceline.accelerate(model, [given], **({} if by_job else config))
        assert same is model and isinstance(optimizer, optim.AdamW)
        assert torch.equal(fitted(model, optimizer), expected)
    told = paceline.explain(as_dict=True)[FEATURE]
    assert (
        told["state"] == "on"
        and "O2 in bfloat16 for torch.nn.modules.linear.Linear" in told["reason"]
    )


def test_what_o2_cannot_do_is_an_error_of_the_program_and_a_line_of_the_job(
    monkeypatch: pytest.MonkeyPatch, put_back: None, capfd: pytest.CaptureFixture[str]
) -> None:
    model = model_of()
    rms = torch.optim.RMSprop(model.parameters())
    with pytest.raises(TypeError, match="there is none for RMSprop"):
        paceline.accelerate(model, rms, numerics="lossy", precision="o2")
    with pytest.raises(ValueError, match="O2 is given 2 optimizers"):
        paceline.accelerate(model, [rms, rms], numerics="lossy", precision="o2")
    with pytest.raises(ValueError, match='add numerics="lossy"'):
        paceline.accelerate(model, precision="O1")
    monkeypatch.setenv("PACELINE_NUMERICS", "Lossy")
    monkeypatch.setenv("PACELINE_PRECISION", "O2")
    assert paceline.accelerate(model, rms) == (model, rms)
    assert (
        model.weight.dtype is torch.float32
        and "there is none for RMSprop" in capfd.readouterr().err
    )


def test_nothing_exceeds_the_jobs_class(
    monkeypatch: pytest.MonkeyPatch, put_back: None, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PACELINE_NUMERICS", "Reordered")
    model = model_of()
    optimizer = torch.optim.AdamW(model.parameters())
    assert amp.decorate(model, optimizer, level="O2") == (model, optimizer)
    assert amp.decorate(model) is model and "forward" not in model.__dict__
    said = "it is of class Lossy, and PACELINE_NUMERICS is Reordered"
    assert capfd.readouterr().err.count(f"the model is left as it is: {said}") == 2
    assert paceline.accelerate(model, numerics="lossy", precision="o1") is model
    assert f"precision O1 is left out: {said}" in capfd.readouterr().err
    assert "forward" not in model.__dict__


# -- graphs
# ------------------------------------------------------------


@pytest.mark.parametrize("told", ["Disabled", "On"])
def test_a_job_can_have_steps_made_as_always(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], told: str
) -> None:
    monkeypatch.setenv("PACELINE_CUDA_GRAPH", told)
    made: list[int] = []
    step = WholeStep(made.append)  # of a number on the host: nothing that could be captured
    for number in range(5):
        step(number)
    assert made == [0, 1, 2, 3, 4] and not step.is_captured
    assert f"steps are made as always: PACELINE_CUDA_GRAPH is {told}" in capfd.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_step_that_is_refused_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph._report, "_captured", [])
    with pytest.raises(graph.Refused):
        WholeStep(lambda: None)()
    told = paceline.explain(as_dict=True)["CUDA graphs"]
    assert told["state"] == "off"
    assert told["reason"] == "the last step was refused: paceline.graph: PyTorch sees no GPU here"


def test_an_unknown_pytorch_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch, put_back: None, capfd: pytest.CaptureFixture[str]
) -> None:
    def call(self: Any, inputs: Any, *, eagerly: bool = False) -> Any:
        return inputs

    monkeypatch.setattr(nn.Module, "__call__", call)
    for name in ("PACELINE_PRECISION", "PACELINE_NUMERICS"):
        monkeypatch.setenv(name, O1[name])
    _patch.install()
    assert nn.Module.__call__ is call and not _patch.everywhere
    assert "not that of a tested PyTorch" in capfd.readouterr().err
