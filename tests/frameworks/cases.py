# SPDX-License-Identifier: Apache-2.0
"""What every example must show: it trains, loses a rank in the middle, starts again and succeeds,
and its steps are in /metrics. The programs check at their end that the ranks exchanged data.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

import jobs
from jobs import EXAMPLES

PATIENCE_S = 400.0
STEP = re.compile(r"step \d+: loss")
TRAINED = "trained by "
HEAD = ("example", "package", "shape", "start", "restart", "step telemetry", "seconds")


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
    says: str = ""  # after the restart


rows: list[list[str]] = []  # of the table that conftest.py prints


def check(build: Path, folder: Path, case: Case) -> None:
    """Runs an example and kills a rank. What worked until a failure stands in the table."""
    python = jobs.environment(case.environment)
    package = f"{case.package} {jobs.version(python, case.package)}"
    row = [case.job, package, case.shape, "fails", "fails", "fails", ""]
    rows.append(row)
    began = time.monotonic()
    run = jobs.start(build, EXAMPLES / f"{case.job}.yaml", python, folder)
    try:
        run.wait_until("first step", lambda: bool(STEP.search(run.output)), PATIENCE_S)
        row[3] = "works"
        run.kill(case.script, case.victim)
        code = run.wait(PATIENCE_S)
    finally:
        run.end()
    assert code == 0, run.tail()
    assert TRAINED in run.output and case.says in run.output, run.tail()
    assert run.restarts == 1, run.tail()
    row[4] = "works"
    assert len(run.steps) >= case.ranks and min(run.steps.values()) > 0, run.steps
    assert set(case.phases) <= run.phases, run.phases
    row[5], row[6] = "measured", f"{time.monotonic() - began:.0f}"
