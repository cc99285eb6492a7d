# SPDX-License-Identifier: Apache-2.0
"""Operators that are tried: what gains stays on with its figure, and what loses is rolled back."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import swin_stand_in  # noqa: F401 - finds the built package
import torch
from paceline._core import effects, explain, reports
from paceline._inject import operators, operators_trial
from paceline.tune import _tuner
from programs import Train

HERE = Path(__file__).resolve().parent
NEW = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 4)  # has the compiler
TRAIN = f"""
import json, sys, time, types
sys.path += [{str(HERE)!r}]
import simota_fake
from paceline import ops
from paceline._core import explain
from paceline._inject import detection, operators
from paceline.tune import _trial, _tuner

_tuner.FIRST_GAP, _trial.WINDOW_SECONDS = 8, 0.02
torch.set_num_threads(1)
library = types.ModuleType(simota_fake.MODULE)
library.SimOTAAssigner = simota_fake.SimOTAAssigner
detection._patch(library)  # as the import of mmdetection does
ours, theirs = {{ours}}, {{theirs}}  # milliseconds that a call takes beside its work

def slower(function, milliseconds):
    def call(*args, **kwargs):
        time.sleep(milliseconds / 1000)
        return function(*args, **kwargs)
    return call

ops.simota_assign = slower(ops.simota_assign, ours)
kind = simota_fake.SimOTAAssigner
kind.dynamic_k_matching = slower(kind.dynamic_k_matching, theirs)
operators.classes[0]._helpers["dynamic_k_matching"] = kind.dynamic_k_matching

rows, columns = torch.meshgrid(torch.arange(8), torch.arange(8), indexing="ij")
priors = torch.stack((columns, rows, columns, rows), -1).reshape(-1, 4) * 8.0 + 4
priors[:, 2:] = 8
predictions = simota_fake.InstanceData(
    bboxes=torch.cat((priors[:, :2] - 9, priors[:, :2] + 9), 1),
    scores=torch.rand(64, 3),
    priors=priors,
)
truths = simota_fake.InstanceData(
    bboxes=torch.tensor([[0.0, 0.0, 30.0, 30.0]]), labels=torch.tensor([1])
)
model, assigner = small(), kind()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = operators.classes[0]
steps = 0
while not operators.trial.told and steps < 5000:
    assert assigner.assign(predictions, truths).gt_inds.any()
    loss_of(model, (torch.randn(8, 4), torch.zeros(8))).backward()
    optimizer.step()
    steps += 1
before = seen.computed
assigner.assign(predictions, truths)
print("computed", seen.computed - before, json.dumps(seen.told()))
print(explain.explain())
"""


@pytest.fixture
def tried(train_by_fork: Train, tmp_path: Path) -> Any:
    def run(ours: int, theirs: int) -> tuple[str, dict[str, Any]]:
        file = tmp_path / "effects.json"
        result = train_by_fork(
            TRAIN.replace("{ours}", str(ours)).replace("{theirs}", str(theirs)),
            PACELINE_OPERATORS="Auto",
            PACELINE_TUNE_AFTER="0",
            PACELINE_EFFECTS_FILE=str(file),
        )
        assert result.code == 0, result.output
        (effect,) = json.loads(file.read_text())["effects"]  # of no other feature
        assert effect["feature"] == "operators"
        return result.output, effect

    return run


def test_what_gains_is_kept_and_told(tried: Any) -> None:
    output, effect = tried(ours=0, theirs=4)
    assert "computed 1 " in output
    assert re.search(r"SimOTAAssigner: \d+ calls computed, class Reordered; kept: \+", output)
    assert "by the library (steps of the trial without it)" in output
    assert effect["kept"] and effect["gain"] > 0.5, effect


# The program of a Swin model, in which a second tuner looks for modules to compile.
SWIN = f"""
import importlib, sys, time, types
sys.path += [{str(HERE)!r}, {str(HERE.parent)!r}]
import swin_fakes, swin_stand_in
from paceline._inject import operators, swin
from paceline.tune import _compile, _report, _trial, _tuner

_tuner.FIRST_GAP, _trial.WINDOW_SECONDS = 8, 0.02
torch.set_num_threads(1)
_compile.why_no_compiler = lambda device: "none here"
operator, plain = swin_stand_in.Operator(), swin_fakes.WindowAttention._get_rel_pos_bias
window = importlib.import_module("paceline.ops._window")
window.serves, window.takes = lambda *_: True, operator.takes
window.window_attention = operator.window_attention

class WindowAttention(swin_fakes.WindowAttention):
    def forward(self, x, mask=None):
        time.sleep(0.004)
        return super().forward(x, mask)

library = types.ModuleType("timm.models.swin_transformer")
library.WindowAttention = WindowAttention
swin._patch(library)  # as the import of timm does
model = nn.Sequential(WindowAttention(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
steps = 0
while not operators.trial.told and steps < 5000:
    model(torch.randn(6, 9, 16)).square().mean().backward()
    optimizer.step()
    steps += 1
print("told", operators.trial.told)
print("left", operators.classes[0]._left)
print("compile", _report._status().seen)
"""


def test_a_swin_model_is_tried_beside_the_compiler(train_by_fork: Train) -> None:
    """The compiler's tuner hooks all modules while it looks for those that train, and then no call
    is computed."""
    result = train_by_fork(
        SWIN,
        PACELINE_OPERATORS="Auto",
        PACELINE_COMPILE="Auto",
        PACELINE_TUNE_AFTER="0",
    )
    assert result.code == 0, result.output
    assert "told kept: +" in result.output, result.output
    if NEW:
        assert "'hooks on all modules'" in result.output, result.output
        assert "none here" in result.output, result.output


def test_why_operators_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "trial", operators.Trial())
    monkeypatch.setattr(operators, "classes", [])
    written = []
    monkeypatch.setattr(operators_trial.effects, "write", lambda: written.append(1))
    change = operators_trial.Operators()
    assert change.why_not() == "no call was computed"

    operators.classes.append(operators.Patched("a class"))
    operators.classes[0].computed = 1
    assert change.why_not() == ""
    assert change.idle() == ""
    change.observe()
    assert change.idle() == "no call was computed in the last steps"

    monkeypatch.setenv("PACELINE_ATTEMPT", "1")
    assert "restarted" in change.why_not()
    monkeypatch.delenv("PACELINE_ATTEMPT")
    torch.use_deterministic_algorithms(True)
    try:
        assert "deterministic" in change.why_not()
    finally:
        torch.use_deterministic_algorithms(False)

    gpu = SimpleNamespace(total_memory=90 << 30)
    for name, value in (
        ("is_available", True),
        ("is_initialized", True),
        ("current_device", 0),
        ("get_device_properties", gpu),
    ):
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 59 << 30)
    assert change.why_not() == ""
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 61 << 30)
    assert "29.0 of 90.0 GiB of the GPU's memory were left" in change.why_not()

    change.left("", "why")
    assert operators.classes[0].told()["text"].endswith("left on without a trial: why")
    operators.trial.told = "kept: +9 %"
    change.left("", "why")
    assert operators.trial.told == "kept: +9 %; not tried again: why"
    assert len(written) == 2, "the job's status tells it"


def test_why_there_is_no_gain_yet_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who asks why Swin shows no gain reads it in explain(), and in the job's status."""
    monkeypatch.setattr(operators, "trial", operators.Trial())
    monkeypatch.setattr(operators, "_switch", "")
    monkeypatch.setattr(reports, "_reports", {})
    reports.register(reports.OPERATORS, operators.status)
    met, unmet = operators.Patched("Swin"), operators.Patched("Other")
    monkeypatch.setattr(operators, "classes", [met, unmet])
    now = 0.0
    change = operators_trial.Operators()
    tuner = _tuner.TunerOfUsed(change, 300.0, lambda: now, report=change)

    def steps(count: int) -> str:
        nonlocal now
        for _ in range(count):
            now += 10.0
            met.computed += 1
            tuner.step_ended()
        lines = explain.explain().splitlines()
        (line,) = (line for line in lines if line.startswith("  Swin: "))
        (effect,) = effects.found()
        assert effect["reason"] == line.strip()
        assert "  Other: no call yet" in lines
        _, known, why = line.partition("class Reordered; gain not yet known: ")
        assert known, line
        return why

    unseen = "it is tried after 300 s of training; no step of PyTorch's optimizers has ended"
    assert steps(1) == unseen
    assert steps(1) == "it is tried after 300 s of training"
    assert steps(60) == "it is tried after 128 more steps"
    assert steps(120) == "it is being tried"
    operators.trial.told = "kept: +9 %"
    assert met.told()["text"].endswith("class Reordered; kept: +9 %")


def test_a_trial_that_cannot_begin_is_told(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def begin() -> Any:
        raise RuntimeError("no tuner")

    monkeypatch.setattr(operators, "begin_trial", begin)
    monkeypatch.setattr(operators, "trial", operators.Trial())
    monkeypatch.setattr(operators, "classes", [])
    monkeypatch.setattr(operators, "_undo", [])

    class Library:
        def method(self) -> int:
            return 1

    class Two(operators.Patched):
        def __call__(self, owner: Any, args: Any, kwargs: Any) -> Any:
            self.computed += 1
            return 2

    for _ in range(2):
        operators.replace(Library, "method", Library.__dict__["method"], Two("Library"))
    assert Library().method() == 2
    said = "left on without a trial: RuntimeError: no tuner"
    assert capfd.readouterr().err == f"paceline: operators: {said}\n"
    assert said in operators.classes[1].told()["text"]


def test_what_loses_is_rolled_back(tried: Any) -> None:
    output, effect = tried(ours=25, theirs=0)
    assert "computed 0 " in output
    assert re.search(r"fused operators: off \(.*SimOTAAssigner: rolled back: -", output), output
    assert not effect["kept"] and "rolled back: -" in effect["reason"], effect
