# SPDX-License-Identifier: Apache-2.0
"""spec.acceleration reaches PyTorch in a program that knows nothing of it, and nothing happens to a job that does not ask."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

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
    """What the program says of both switches, after it has trained under a job with this in its spec."""
    (folder / "train.py").write_text(SCRIPT)
    trainer = {"name": "trainer", "image": "none", "command": [sys.executable, str(folder / "train.py")]}
    job = {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "asks"},
        "spec": {
            "framework": {"type": "PyTorch", "processesPerReplica": 1},
            "roles": [{"name": "worker", "replicas": 1, "template": {"spec": {"containers": [trainer]}}}],
            **spec,
        },
    }
    (folder / "job.yaml").write_text(json.dumps(job))  # which is YAML too
    done = subprocess.run(
        [build / "bin" / "paceline", "run", "-f", folder / "job.yaml"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    told = {}
    for name, begins in {
        "optimizer": "fused optimizers in place of PyTorch's own: ",
        "loader": "our iterator in place of PyTorch's own in loaders: ",
    }.items():
        line = next(line for line in done.stdout.splitlines() if begins in line)
        told[name] = line.partition(begins)[2].partition(";")[0]
    return told


def test_auto_turns_on_what_keeps_to_the_class(build: Path, tmp_path: Path) -> None:
    told = explained(build, tmp_path, {"acceleration": {}})
    assert told == {"optimizer": "on for Adam, AdamW, SGD", "loader": "on"}


def test_a_class_leaves_out_what_exceeds_it(build: Path, tmp_path: Path) -> None:
    told = explained(build, tmp_path, {"acceleration": {"numerics": "Bitwise"}})
    assert told["loader"] == "on" and "Bitwise" in told["optimizer"] and told["optimizer"].startswith("off")


def test_a_job_that_says_nothing_runs_as_it_was_written(build: Path, tmp_path: Path) -> None:
    told = explained(build, tmp_path, {})
    assert all("is not set" in said for said in told.values()), told
