# SPDX-License-Identifier: Apache-2.0
"""A rank fails, and takes longer to end than those that lose it: the job names the one that failed,
however its program ends.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from local import run_job

BEGIN = """
import sys
import torch
import torch.distributed as dist
import paceline.comm

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
"""
# Closes what the others wait on before its exception is seen.
CLOSES_FIRST = """
try:
    for step in range(100):
        if step == 5 and rank == 3:
            raise ValueError("the reason")
        dist.all_reduce(torch.ones(1000))
finally:
    dist.destroy_process_group()
"""
LEAVES_A_COMMUNICATOR = """
with paceline.comm.Communicator() as comm:
    for step in range(100):
        if step == 5 and rank == 3:
            raise ValueError("the reason")
        comm.all_reduce(torch.ones(1000))
"""
EXITS = """
for step in range(100):
    if step == 5 and rank == 3:
        print("the reason", file=sys.stderr)
        sys.exit(7)
    dist.all_reduce(torch.ones(1000))
"""


@pytest.mark.parametrize(
    ("program", "code"),
    [(CLOSES_FIRST, 1), (LEAVES_A_COMMUNICATOR, 1), (EXITS, 7)],
    ids=["closes", "leaves", "exits"],
)
def test_the_rank_that_failed_is_named(
    build: Path, tmp_path: Path, program: str, code: int
) -> None:
    (tmp_path / "train.py").write_text(BEGIN + program)
    _, output = run_job(
        build,
        tmp_path,
        [sys.executable, str(tmp_path / "train.py")],
        {},
        replicas=2,
        framework={"type": "PyTorch", "processesPerReplica": 2},
        failurePolicy={"maxRestarts": 0},
    )
    named = set(re.findall(r"Failed[ :(]+rank (\d) on \S+ exited with code (\d)", output))
    assert named == {("3", str(code))}, output
    assert "the reason" in output
