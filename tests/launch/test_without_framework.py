# SPDX-License-Identifier: Apache-2.0
"""A job whose program has no framework: its ranks meet by what the launcher tells them, again after
a restart in place.
"""

from __future__ import annotations

import sys
from pathlib import Path

from local import run_job

SCRIPT = """
import os, signal, sys
sys.modules["torch"] = None
import numpy
import paceline.arrays
attempt = int(os.environ["PACELINE_ATTEMPT"])
with paceline.arrays.of_job() as communicator, paceline.arrays.of_job("second") as second:
    total = communicator.allreduce(numpy.full(5, communicator.rank + 1.0))
    if attempt == 0 and communicator.rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    second.barrier()
    print(f"attempt {attempt}: rank {communicator.rank} of {communicator.ranks} has {total.tolist()}", flush=True)
"""


def test_ranks_of_a_program_without_a_framework_meet(build: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    code, output = run_job(
        build,
        tmp_path,
        [sys.executable, str(tmp_path / "train.py")],
        {},
        replicas=2,
        framework={"type": "PyTorch", "processesPerReplica": 2},
        failurePolicy={"maxRestarts": 1, "gracePeriod": "1s"},
    )
    assert code == 0, output
    told = {line[line.index("attempt ") :] for line in output.splitlines() if " of 4 has " in line}
    assert told == {f"attempt 1: rank {rank} of 4 has {[10.0] * 5}" for rank in range(4)}, output
