# SPDX-License-Identifier: Apache-2.0
"""A job of one role, run on this machine by `paceline run`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any


def run_of(
    build: Path,
    folder: Path,
    command: list[str],
    environment: dict[str, str],
    replicas: int = 1,
    limits: dict[str, int] | None = None,
    **spec: Any,
) -> list[str | Path]:
    """The command that runs the job; `limits` are the trainer's, further keywords go into the spec."""
    trainer: dict[str, Any] = {
        "name": "trainer",
        "image": "none",
        "command": command,
        "env": [{"name": name, "value": value} for name, value in environment.items()],
    }
    if limits:
        trainer["resources"] = {"limits": limits}
    role = {"name": "worker", "replicas": replicas, "template": {"spec": {"containers": [trainer]}}}
    job = {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "local"},
        "spec": {
            "framework": {"type": "PyTorch", "processesPerReplica": 1},
            "roles": [role],
            **spec,
        },
    }
    (folder / "job.yaml").write_text(json.dumps(job))  # which is YAML too
    return [build / "bin" / "paceline", "run", "-f", folder / "job.yaml"]


def run_job(build: Path, folder: Path, *of_job: Any, **more: Any) -> tuple[int, str]:
    """Exit code and output of the job that `run_of` makes."""
    done = subprocess.run(
        run_of(build, folder, *of_job, **more),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150,
        check=False,
    )
    return done.returncode, done.stdout
