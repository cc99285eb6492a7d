# SPDX-License-Identifier: Apache-2.0
"""The examples of frameworks whose packages are large, with those packages."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case, check

CASES = [
    Case("jax", "jax", "jax", "collective", phases=("compute_undivided", "data_wait")),
    Case("deepspeed", "deepspeed", "deepspeed", "ZeRO stage 1", phases=("backward", "optimizer")),
    Case("horovod", "horovod", "horovod", "Gloo", phases=("backward", "optimizer")),
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
        says="resumed after step",
    ),
    Case(
        "tensorflow-parameter-server",
        "tensorflow",
        "tensorflow-cpu",
        "parameter server that dies",
        script="parameter_server.py",
        ranks=1,
        victim="RANK=3",  # the first number after those that train
        says="resumed after step",
    ),
    Case(
        "paddle",
        "paddle",
        "paddlepaddle",
        "collective",
        phases=("data_wait", "forward", "backward", "optimizer"),
    ),
    Case("mindspore", "mindspore", "mindspore", "scheduler, workers"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.job}-{case.shape}")
def test_an_example_survives_the_kill_of_a_rank(build: Path, tmp_path: Path, case: Case) -> None:
    check(build, tmp_path, case)
