# SPDX-License-Identifier: Apache-2.0
"""scripts/cluster with stand-ins for all it calls: what it loads, what it ends when a step fails,
and its last line.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PASTE = "export KUBECONFIG=/run/config PATH=/tools:$PATH"


@dataclass
class Stage:
    """A checkout in which every command writes down its call and ends with 0, or 1 where told."""

    root: Path

    @property
    def calls(self) -> list[str]:
        return (self.root / "calls").read_text().splitlines()

    def command(self, path: str, says: str = "", fails_at: str = "") -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            f'#!/bin/bash\necho "{file.name} $*" >>{self.root}/calls\n'
            f"[[ $1 =~ ^({fails_at})$ && -n $1 ]] && exit 1\ncat <<'END'\n{says}\nEND\n"
        )
        file.chmod(0o755)

    def run(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.root / "scripts" / "cluster"), "up"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Stage(tmp_path)
    (tmp_path / "scripts" / "imaging").mkdir(parents=True)
    for name in ("cluster", "imaging/examples.py"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts" / name)
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "job.yaml").write_text(
        "spec: {containers: [{image: 'paceline/pytorch:dev'}]}"
    )
    for name in ("scripts/setup", "scripts/build", "scripts/images", "tools/helm", "tools/kubectl"):
        made.command(name)
    made.command("tests/cluster/build-tools", says=f"built\n{tmp_path}/tools")
    made.command("tests/cluster/cluster", says=f"starting\n{PASTE}", fails_at="status")
    return made


def test_loads_what_the_examples_name_and_ends_with_the_line_to_paste(stage: Stage) -> None:
    done = stage.run()
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().splitlines()[-1] == PASTE
    names = ["agent", "busybox", "operator", "pytorch", "runtime"]
    assert f"images {' '.join(names)}" in stage.calls
    load = "cluster load-image " + " ".join(
        f"{stage.root}/build/images/{name}.tar" for name in names
    )
    assert load in stage.calls
    assert stage.calls.index(load) < next(
        n for n, call in enumerate(stage.calls) if call.startswith("helm install")
    )
    assert "cluster down" not in stage.calls


@pytest.mark.parametrize(
    ("tool", "step"), [("tools/helm", "install"), ("tests/cluster/cluster", "status|load-image")]
)
def test_a_failure_after_the_start_ends_the_cluster(stage: Stage, tool: str, step: str) -> None:
    stage.command(tool, says=PASTE, fails_at=step)
    done = stage.run()
    assert done.returncode == 1
    assert stage.calls[-1] == "cluster down"
    assert "Paceline was not installed" in done.stderr


def test_a_cluster_that_does_not_start_is_left_to_whoever_has_it(stage: Stage) -> None:
    stage.command("tests/cluster/cluster", says=PASTE, fails_at="status|up")
    assert stage.run().returncode == 1
    assert "cluster down" not in stage.calls


def test_a_cluster_that_is_up_is_told_of_before_any_work(stage: Stage) -> None:
    stage.command("tests/cluster/cluster", says="2 nodes")
    done = stage.run()
    assert done.returncode == 1
    assert "scripts/cluster down" in done.stderr
    assert stage.calls == ["cluster status"]


def test_an_unknown_image_stops_it_before_any_work(stage: Stage) -> None:
    (stage.root / "examples" / "job.yaml").write_text(
        "spec: {containers: [{image: 'example.org/other:1'}]}"
    )
    done = stage.run()
    assert done.returncode == 1
    assert "example.org/other:1" in done.stderr
    assert stage.calls == ["cluster status", "setup "]
