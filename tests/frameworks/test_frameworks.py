# SPDX-License-Identifier: Apache-2.0
"""The examples of every framework, with its real package, by `paceline run`.

Each job trains, loses a rank in the middle, starts again and succeeds. The programs check at their
end that the ranks exchanged data. docs/frameworks.md shows the table that the last test prints.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import jobs
import pytest

PATIENCE_S = 400.0
TRAINED = "trained by "


@dataclass(frozen=True)
class Case:
    """An example, and what its steps look like in /metrics."""

    job: str  # examples/JOB.yaml
    environment: str  # of scripts/framework-env
    package: str
    shape: str
    script: str = "train.py"
    ranks: int = 2  # that show steps
    phases: tuple[str, ...] = ("unattributed",)  # that are seen, beside others
    victim: str = "RANK=1"  # a variable of the rank that is killed


CASES = [
    Case("xgboost", "xgboost", "xgboost-cpu", "collective"),
    Case("jax", "jax", "jax", "collective"),
    Case("deepspeed", "deepspeed", "deepspeed", "ZeRO stage 1", phases=("forward", "optimizer")),
    Case("mpi", "mpi4py", "mpi4py", "mpirun", ranks=4, victim="OMPI_COMM_WORLD_RANK=1"),
    Case(
        "tensorflow-multiworker",
        "tensorflow",
        "tensorflow-cpu",
        "MultiWorkerMirrored",
        phases=("compute_undivided", "other"),
    ),
    Case(
        "tensorflow-parameter-server",
        "tensorflow",
        "tensorflow-cpu",
        "parameter server",
        script="parameter_server.py",
        ranks=1,
    ),
    Case(
        "paddle",
        "paddle",
        "paddlepaddle",
        "collective",
        phases=("compute_undivided", "data_wait"),
    ),
    Case("mindspore", "mindspore", "mindspore", "scheduler, workers"),
]
rows: dict[str, list[str]] = {}


@contextmanager
def running(build: Path, case: Case, python: Path, folder: Path) -> Iterator[jobs.Run]:
    run = jobs.start(build, case.job, python, folder)
    try:
        yield run
    finally:
        run.end()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.job)
def test_a_job_survives_the_kill_of_a_rank(build: Path, tmp_path: Path, case: Case) -> None:
    python = jobs.environment(case.environment)
    began = time.monotonic()
    row = rows[case.job] = [
        case.job,
        f"{case.package} {jobs.version(python, case.package)}",
        case.shape,
        "fails",
        "fails",
        "fails",
        "",
    ]
    with running(build, case, python, tmp_path) as run:
        run.wait_until("first step", lambda: "step " in run.output, PATIENCE_S)
        row[3] = "works"
        run.kill(case.script, case.victim)
        code = run.wait(PATIENCE_S)
        assert code == 0, run.tail()
    assert TRAINED in run.output, run.tail()
    assert run.restarts == 1, run.tail()
    row[4] = "works"
    assert len(run.steps) >= case.ranks and min(run.steps.values()) > 0, run.steps
    assert set(case.phases) <= run.phases, run.phases
    row[5], row[6] = "measured", f"{time.monotonic() - began:.0f}"


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Printed by every run, as it stands in docs/frameworks.md."""
    head = ["example", "package", "shape", "start", "restart", "step telemetry", "seconds"]
    with capsys.disabled():
        print()
        for row in [head, ["---"] * len(head), *rows.values()]:
            print(f"| {' | '.join(row)} |")
    assert rows, "no framework was tried"
