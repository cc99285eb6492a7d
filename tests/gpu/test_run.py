# SPDX-License-Identifier: Apache-2.0
"""What tests/gpu/run makes of its steps: a copy of it, with an interpreter that plays PyTorch, its GPU and the steps."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INTERPRETER = r"""#!/bin/sh
case "$1" in
  -c) case "$2" in *get_device_capability*) echo 9.0 ;; esac ;;
  tests/gpu/compiler) printf -- '--nvcc\n/nowhere/nvcc\n' ;;
  tests/gpu/comm_check.py) echo '{"row": 1}' >>"$PACELINE_GPU_RESULTS"; exit 3 ;;
  *) echo "ran $*" ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "a folder"
    (folder / "tests/gpu").mkdir(parents=True)
    shutil.copy(ROOT / "tests/gpu/run", folder / "tests/gpu/run")
    (folder / "python").write_text(INTERPRETER)
    (folder / "python").chmod(0o755)
    return folder


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [folder / "tests/gpu/run", *options],
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "PACELINE_PYTHON": str(folder / "python")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_step_that_fails_is_named_and_the_others_are_run(folder: Path) -> None:
    answer = run(folder, "--only", "optim_check,comm_check,optim_times", "--rounds", "3")
    assert answer.returncode == 1, answer.stderr
    said = answer.stdout.splitlines()
    assert [line for line in said if line.startswith("ran ")] == [
        "ran tests/gpu/optim_check.py",
        "ran tests/gpu/optim_times.py --rounds 3",
    ]
    # Where the whole run is ended, what was found by then has been said.
    row, failed, times = (
        next(number for number, line in enumerate(said) if line.startswith(begin))
        for begin in ('{"row": 1}', "comm_check: FAILED, code 3 after ", "ran tests/gpu/optim_times.py")
    )
    assert row < failed < times
    assert said[-2] == '{"row": 1}'
    assert json.loads(said[-1])["failed"] == ["comm_check (code 3)"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "record,kernel"], "there is no step kernel; there are record build kernels"),
        (["--only"], "--only takes steps"),
    ],
)
def test_steps_that_are_none_are_refused(folder: Path, options: list[str], words: str) -> None:
    answer = run(folder, *options)
    assert answer.returncode == 2 and words in answer.stderr, answer.stderr
    assert not answer.stdout
