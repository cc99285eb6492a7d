# SPDX-License-Identifier: Apache-2.0
"""What a test run that was killed leaves on the machine, and how the next one goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))

from testcluster import cgroups, lifecycle
from testcluster.state import ClusterError


@pytest.fixture
def removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine whose cluster has daemons. Holds an entry for each removal of a cluster."""
    run = tmp_path / "run"
    calls: list[str] = []

    def down() -> None:
        calls.append("down")
        for file in run.iterdir():
            file.unlink()
        run.rmdir()

    monkeypatch.setattr(lifecycle, "RUN", run)
    monkeypatch.setattr(lifecycle, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(lifecycle, "STARTER", run / "starter.pid")
    monkeypatch.setattr(lifecycle, "OWNER", run / "owner.pid")
    monkeypatch.setattr(lifecycle, "down", down)
    monkeypatch.setattr(cgroups, "members", lambda _: {1})
    return calls


def ended() -> int:
    """The number of a process that is no more."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
        return process.pid


def left_behind(owner: int | None) -> None:
    """As after `up`: the starter has ended, the daemons live."""
    lifecycle.claim(owner)
    lifecycle.STARTER.write_text("")


def test_the_cluster_of_a_killed_test_run_is_removed_by_the_next(removed: list[str]) -> None:
    with subprocess.Popen(["sleep", "60"]) as run:
        left_behind(run.pid)
        run.kill()
    lifecycle.claim(os.getpid())
    assert removed == ["down"]


def test_a_number_that_is_used_again_is_not_the_owner(removed: list[str]) -> None:
    left_behind(os.getpid())
    lifecycle.OWNER.write_text(f"{os.getpid()} 1")
    lifecycle.claim(None)
    assert removed == ["down"]


def test_the_cluster_of_a_living_test_run_stays(removed: list[str]) -> None:
    left_behind(os.getpid())
    with pytest.raises(ClusterError, match="a cluster is up"):
        lifecycle.claim(None)
    assert removed == []


def test_a_cluster_without_an_owner_is_a_persons_and_stays(removed: list[str]) -> None:
    left_behind(None)
    with pytest.raises(ClusterError, match="a cluster is up"):
        lifecycle.claim(os.getpid())
    assert removed == []


def test_a_cluster_that_is_starting_stays_whatever_became_of_its_owner(removed: list[str]) -> None:
    lifecycle.claim(ended())
    with pytest.raises(ClusterError, match="a cluster is up"):
        lifecycle.claim(None)
    assert removed == []


def test_what_a_reboot_left_is_removed(removed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    left_behind(None)
    monkeypatch.setattr(cgroups, "members", lambda _: set())
    lifecycle.claim(None)
    assert removed == ["down"]


OPERATOR_OF_A_RUN = """
import sys
from pathlib import Path
from testbed import Operator
folder = Path(sys.argv[1])
Operator(folder / "kubeconfig", folder, []).start()
print("started", flush=True)
sys.stdin.read()
"""


def test_the_operator_ends_with_its_test_run(tmp_path: Path) -> None:
    binary = tmp_path / "bin" / "paceline-operator"
    binary.parent.mkdir()
    binary.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid\nexec sleep 60\n")
    binary.chmod(0o755)
    tests = Path(__file__).resolve().parents[1] / "e2e"
    environment = {**os.environ, "PACELINE_BUILD_DIR": str(tmp_path), "PYTHONPATH": str(tests)}
    with subprocess.Popen(
        [sys.executable, "-c", OPERATOR_OF_A_RUN, str(tmp_path)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as run:
        assert run.stdout is not None and run.stdout.readline() == b"started\n"
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
        run.kill()
    operator = int((tmp_path / "pid").read_text())
    until(lambda: lifecycle._identity(operator) == "")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "not within 20 s"
        time.sleep(0.01)
