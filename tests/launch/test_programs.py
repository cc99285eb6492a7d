# SPDX-License-Identifier: Apache-2.0
"""What every program of Paceline answers to a person who does not know it yet."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from local import run_of

USAGE = 2
PROGRAMS = ("paceline", "paceline-agent", "paceline-launcher", "paceline-operator")


def answer(command: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("name", [*PROGRAMS, "paceline-probe", "paceline-record"])
def test_help_is_an_answer_and_an_unknown_flag_a_wrong_use(
    build: Path, tmp_path: Path, name: str
) -> None:
    program = build / "bin" / name
    asked = answer([program, "--help"], tmp_path)
    assert (asked.returncode, name in asked.stdout + asked.stderr) == (0, True), asked
    wrong = answer([program, "--no-such-flag"], tmp_path)
    assert (wrong.returncode, wrong.stdout) == (USAGE, ""), wrong
    assert wrong.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_operator_reconciles_several_jobs_at_once(build: Path, tmp_path: Path) -> None:
    """Unless it is told otherwise."""
    told = answer([build / "bin" / "paceline-operator", "--help"], tmp_path).stdout
    (workers,) = re.findall(r"--workers .*=(\d+)", told)
    assert int(workers) >= 4, told


def test_all_tell_the_same_version(build: Path, tmp_path: Path) -> None:
    told = {name: answer([build / "bin" / name, "--version"], tmp_path).stdout for name in PROGRAMS}
    assert len(set(told.values())) == 1, told
    assert told["paceline"].count(".") == 2


def test_the_launcher_makes_no_folder_of_a_flag(build: Path, tmp_path: Path) -> None:
    asked = answer([build / "bin" / "paceline-launcher", "install", "--help"], tmp_path)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert (
        answer([build / "bin" / "paceline-launcher", "install", "--force"], tmp_path).returncode
        == USAGE
    )
    assert list(tmp_path.iterdir()) == []


def test_a_launcher_without_its_dashes_does_not_succeed(build: Path, tmp_path: Path) -> None:
    """As a container's command that would count as a finished training."""
    forgotten = answer(
        [build / "bin" / "paceline-launcher", "run", "python3", "train.py", "--help"], tmp_path
    )
    assert (forgotten.returncode, forgotten.stdout) == (USAGE, "")
    assert "run -- COMMAND" in forgotten.stderr


def test_an_unknown_command_is_named(build: Path, tmp_path: Path) -> None:
    wrong = answer([build / "bin" / "paceline", "walk"], tmp_path)
    assert (wrong.returncode, wrong.stdout) == (USAGE, "")
    assert "no command walk" in wrong.stderr


def test_a_runtime_that_is_none_is_refused(build: Path, tmp_path: Path) -> None:
    wrong = answer([*run_of(build, tmp_path, ["true"], {}), "--runtime", "/nowhere"], tmp_path)
    assert wrong.returncode == USAGE
    assert "--runtime /nowhere" in wrong.stderr


def test_a_path_of_the_image_that_this_machine_has_not_is_told(build: Path, tmp_path: Path) -> None:
    command = run_of(
        build, tmp_path, ["ls", "/no-workspace/train.py"], {}, failurePolicy={"maxRestarts": 0}
    )
    assert "--map /no-workspace=FOLDER" in answer(command, tmp_path).stderr
    mapped = answer([*command, "--map", f"/no-workspace={tmp_path}"], tmp_path)
    assert "--map" not in mapped.stderr
