# SPDX-License-Identifier: Apache-2.0
"""A PyTorchJob that kubeflow publishes, with its program as it is: converted, and run. The program
needs PyTorch 2.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = "training-operator@v1.9.3/examples/pytorch/cpu-demo"


def printed_path(*script: str) -> Path:
    """The path that a script prints last."""
    program = ROOT.joinpath(*script)
    done = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip().splitlines()[-1])


def test_a_published_job_and_its_program_run(build: Path, tmp_path: Path) -> None:
    folder = printed_path("tests", "conformance", "published", "fetch") / EXAMPLE
    python = printed_path("scripts", "pytorch-venv")
    paceline, job = build / "bin" / "paceline", tmp_path / "job.yaml"
    subprocess.run([paceline, "convert", "-f", folder / "demo.yaml", "-o", job], check=True)
    # The job names its program relative to the folder.
    done = subprocess.run(
        [paceline, "run", "-f", job],
        cwd=folder,
        env={**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    for rank in range(4):  # a Master and a Worker of two processes each
        assert f"rank {rank} world_size 4 result tensor([4])" in done.stdout, done.stdout
