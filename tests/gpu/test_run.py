# SPDX-License-Identifier: Apache-2.0
"""What tests/gpu/run makes of its steps: a copy of it, with an interpreter that plays PyTorch, its
GPU and the steps.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INTERPRETER = r"""#!/bin/sh
case "$1" in
  -c) case "$2" in *get_device_capability*) echo 9.0 ;; esac ;;
  tests/gpu/compiler) printf -- '--nvcc\n/nowhere/nvcc\n' ;;
  tests/gpu/comm_check.py) echo '{"row": 1}' >>"$PACELINE_GPU_RESULTS"; exit 3 ;;
  tests/gpu/step_check.py) sleep 60 & echo $! >sleeps; wait ;;
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
    for name in ("python/paceline/__init__.py", "kernels/kernel.cubin"):
        built = folder / "build/gpu/runtime" / name
        built.parent.mkdir(parents=True)
        built.touch()
    return folder


def begun(folder: Path, *options: str, path: str = "/usr/bin:/bin") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [folder / "tests/gpu/run", *options],
        cwd="/",
        env={"PATH": path, "PACELINE_PYTHON": str(folder / "python")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(
    folder: Path, *options: str, path: str = "/usr/bin:/bin"
) -> subprocess.CompletedProcess[str]:
    with begun(folder, *options, path=path) as running:
        out, err = running.communicate()
    return subprocess.CompletedProcess(options, running.returncode, out, err)


def test_a_build_that_was_carried_along_needs_no_compiler(folder: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in [
        "bash",
        "cat",
        "dirname",
        "env",
        "find",
        "mkdir",
        "rm",
        "sed",
        "sh",
        "tail",
        "timeout",
        "touch",
        "wc",
    ]:
        found = shutil.which(name)
        assert found, name
        (tools / name).symlink_to(found)
    answer = run(folder, "--only", "optim_check,optim_times", path=str(tools))
    assert answer.returncode == 0, answer.stderr
    assert "ran tests/gpu/optim_times.py" in answer.stdout and "kernels by" not in answer.stdout
    answer = run(folder, "--only", "build", path=str(tools))
    assert answer.returncode == 2 and "carry build/gpu along" in answer.stderr, answer.stderr


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
        for begin in (
            '{"row": 1}',
            "comm_check: FAILED, code 3 after ",
            "ran tests/gpu/optim_times.py",
        )
    )
    assert row < failed < times
    assert said[-2] == '{"row": 1}'
    assert json.loads(said[-1])["failed"] == ["comm_check (code 3)"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "record,kernel"], "there is no step kernel; there are record build kernels"),
        (["--only"], "--only takes steps"),
        (["--only=record,kernel"], "there is no step kernel; there are record build kernels"),
        (["--rounds", "3", "--only", "record"], "--only: write --only STEPS"),
        (["--only", "record", "--only=build"], "--only=build: write --only STEPS"),
    ],
)
def test_steps_that_are_none_are_refused(folder: Path, options: list[str], words: str) -> None:
    answer = run(folder, *options)
    assert answer.returncode == 2 and words in answer.stderr, answer.stderr
    assert not answer.stdout


def test_what_is_not_built_is_told_before_any_work(folder: Path) -> None:
    shutil.rmtree(folder / "build/gpu/runtime/kernels")
    answer = run(folder, "--only=record,optim_check")
    assert (
        answer.returncode == 2
        and "optim_check could run with: add kernels to --only" in answer.stderr
    )
    shutil.rmtree(folder / "build")
    answer = run(folder, "--only=optim_check")
    assert answer.returncode == 2 and "nothing is built here yet" in answer.stderr, answer.stderr
    assert "add build,kernels to --only" in answer.stderr
    assert not (folder / "build").exists()


@pytest.mark.parametrize("options", [["--help"], ["--only", "optim_check", "-h"]])
def test_help_is_the_header_and_no_run(folder: Path, options: list[str]) -> None:
    answer = run(folder, *options)
    assert answer.returncode == 0, answer.stderr
    said = answer.stdout.splitlines()
    assert said[0].startswith("Everything that needs a GPU")
    assert said[-1].endswith("2 if something is missing.")


def test_the_limits_that_are_told_are_those_of_the_steps_and_parts_have_ten_minutes() -> None:
    text = (ROOT / "tests/gpu/run").read_text()
    limits = {
        name: int(seconds)
        for name, seconds in re.findall(r"^step (\w+) (\d+) ", text, re.MULTILINE)
    }
    told = " ".join(re.findall(r"^# +(.*)", text, re.MULTILINE))
    assert ", ".join(f"{name} {seconds}" for name, seconds in limits.items()) in told
    parts = [
        part.split(",")
        for part in re.findall(r"^#   tests/gpu/run --only (\S+)$", text, re.MULTILINE)
    ]
    assert sorted(sum(parts, [])) == sorted(limits)
    assert all(sum(limits[name] + 10 for name in part) < 600 for part in parts)


def test_a_part_keeps_what_the_parts_before_found(folder: Path) -> None:
    run(folder, "--only=comm_check")
    assert run(folder, "--only=optim_check").stdout.splitlines()[-2] == '{"row": 1}'


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_run_that_is_ended_ends_its_step_and_begins_no_other(
    folder: Path, number: int, code: int
) -> None:
    with begun(folder, "--only=step_check,optim_times") as running:
        sleeps = folder / "sleeps"
        wait_for(lambda: sleeps.exists() and sleeps.read_text().endswith("\n"))
        running.send_signal(number)
        out, err = running.communicate(
            timeout=30
        )  # all that the step started have ended: their pipes are closed
    assert running.returncode == code, err
    assert "optim_times" not in out


def wait_for(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.01)
