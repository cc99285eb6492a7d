# SPDX-License-Identifier: Apache-2.0
"""Operators that are tried: what gains stays on with its figure, and what loses is rolled back."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from programs import Train

HERE = Path(__file__).resolve().parent
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


def test_what_loses_is_rolled_back(tried: Any) -> None:
    output, effect = tried(ours=9, theirs=0)
    assert "computed 0 " in output
    assert re.search(r"fused operators: off \(.*SimOTAAssigner: rolled back: -", output), output
    assert not effect["kept"] and "rolled back: -" in effect["reason"], effect
