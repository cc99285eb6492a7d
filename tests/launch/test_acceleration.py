# SPDX-License-Identifier: Apache-2.0
"""spec.acceleration reaches PyTorch in a program that knows nothing of it, and a job that says
nothing has the default.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from local import run_job

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
model = nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters())
for (inputs,) in DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, num_workers=1):
    optimizer.zero_grad()
    model(inputs).pow(2).mean().backward()
    optimizer.step()
import paceline
print(paceline.explain())
"""


def explained(build: Path, folder: Path, spec: dict[str, Any]) -> dict[str, str]:
    """What the program says of each switch, after it has trained under a job with this in its spec."""
    (folder / "train.py").write_text(SCRIPT)
    code, output = run_job(build, folder, [sys.executable, str(folder / "train.py")], {}, **spec)
    assert code == 0, output
    told = {}
    for name, begins in {
        "optimizer": "fused optimizers in place of PyTorch's own: ",
        "loader": "our iterator in place of PyTorch's own in loaders: ",
        "communication": "gradients of DistributedDataParallel over our communicator: ",
        "precision": "mixed precision: ",
        "graphs": "CUDA graphs: ",
        "compile": "compiled models, tried and kept where they gain: ",
    }.items():
        line = next(line for line in output.splitlines() if begins in line)
        told[name] = line.partition(begins)[2].partition(";")[0]
    return told


@pytest.mark.parametrize("spec", [{}, {"acceleration": {}}], ids=["unset", "empty"])
def test_what_keeps_to_the_class_is_on_by_default(
    build: Path, tmp_path: Path, spec: dict[str, Any]
) -> None:
    told = explained(build, tmp_path, spec)
    graphs, precision, compiled = (told.pop(name) for name in ("graphs", "precision", "compile"))
    assert told == {"optimizer": "on for Adam, AdamW, SGD", "loader": "on", "communication": "on"}
    assert precision.startswith("off (PACELINE_PRECISION is not set"), "it is never a default"
    assert compiled == "on" or "has no torch.nn.Module.compile" in compiled
    assert graphs == "off (no paceline.graph.WholeStep has captured one)"


def test_a_class_leaves_out_what_exceeds_it(build: Path, tmp_path: Path) -> None:
    told = explained(build, tmp_path, {"acceleration": {"numerics": "Bitwise"}})
    assert told["loader"] == "on"
    for name in ("optimizer", "communication", "compile"):
        assert "Bitwise" in told[name] and told[name].startswith("off"), told


def test_what_loses_precision_reaches_the_program_with_its_class(
    build: Path, tmp_path: Path
) -> None:
    spec = {"mode": "Manual", "numerics": "Lossy", "compression": {"powerSGD": {"rank": 2}}}
    spec |= {"precision": "O1", "cudaGraph": "Disabled"}
    told = explained(build, tmp_path, {"acceleration": spec})
    assert told["communication"] == "on (compression PowerSGD:rank=2,start=1000)", told
    assert told["loader"].startswith("off") and told["optimizer"].startswith("off"), told
    assert told["precision"].startswith("on (PACELINE_PRECISION is O1"), told
    assert told["graphs"] == "off (PACELINE_CUDA_GRAPH is Disabled)", told


def test_a_job_that_disables_it_runs_as_it_was_written(build: Path, tmp_path: Path) -> None:
    told = explained(build, tmp_path, {"acceleration": {"mode": "Disabled"}})
    del told["graphs"]
    assert all("is not set" in said for said in told.values()), told


def test_a_run_does_not_end_with_features_that_the_job_disables(
    build: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.partition("import paceline")[0])
    command = [sys.executable, str(tmp_path / "train.py")]
    for acceleration, told in (({"mode": "Disabled"}, False), ({"loader": "Disabled"}, True)):
        code, output = run_job(build, tmp_path, command, {}, acceleration=acceleration)
        assert code == 0, output
        assert ("acceleration of rank 0" in output) is told, output
