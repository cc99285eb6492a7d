# SPDX-License-Identifier: Apache-2.0
"""spec.framework.type: MPI with the real mpirun of Open MPI and of MPICH: no sshd runs here, and the
hosts' names resolve to nothing.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from local import run_job, run_of

PROGRAM = r"""
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char** words) {
  MPI_Init(&count, &words);
  int rank, size, one = 1, sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  char line[256];
  snprintf(line, sizeof line, "rank %d of %d counts %d on %s-%s token %s\n", rank, size, sum,
           getenv("PACELINE_ROLE"), getenv("PACELINE_REPLICA_INDEX"),
           getenv("PACELINE_TOKEN") ? "shown" : "hidden");
  fputs(line, stdout);
  fflush(stdout);
  if (getenv("DIES") && rank == 1 && !strcmp(getenv("PACELINE_ATTEMPT"), "0")) raise(SIGKILL);
  MPI_Barrier(MPI_COMM_WORLD);
  return MPI_Finalize();
}
"""

WORKERS: dict[str, Any] = {"replicas": 2, "framework": {"type": "MPI", "processesPerReplica": 2}}


@pytest.fixture(scope="module", params=["openmpi", "mpich"])
def kind(request: pytest.FixtureRequest) -> str:
    """An installed MPI library."""
    name: str = request.param
    if not shutil.which(f"mpirun.{name}") or not shutil.which(f"mpicc.{name}"):
        pytest.skip(f"mpirun.{name} and mpicc.{name} are not installed")
    return name


@pytest.fixture(scope="module")
def program(kind: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a program that prints a line per rank."""
    folder = tmp_path_factory.mktemp(kind)
    (folder / "program.c").write_text(PROGRAM)
    compiler = [f"mpicc.{kind}", folder / "program.c", "-o", folder / "program"]
    subprocess.run(compiler, check=True)
    return str(folder / "program")


def places(output: str, size: int) -> dict[int, str]:
    """Where each rank ran; every line must count all ranks and show no token."""
    lines = rf"rank (\d+) of {size} counts {size} on (\S+) token hidden"
    return {int(rank): where for rank, where in re.findall(lines, output)}


def with_launcher(command: list[str], workers: int) -> list[dict[str, Any]]:
    """A role that runs the command, and one whose pods hold the ranks."""
    roles = [("launcher", "Launcher", 1, command), ("worker", "Worker", workers, ["unused"])]
    return [
        {
            "name": name,
            "kind": kind,
            "replicas": replicas,
            "template": {
                "spec": {"containers": [{"name": "trainer", "image": "none", "command": words}]}
            },
        }
        for name, kind, replicas, words in roles
    ]


def test_the_first_worker_runs_mpirun_over_all(
    build: Path, tmp_path: Path, kind: str, program: str
) -> None:
    code, output = run_job(build, tmp_path, [f"mpirun.{kind}", "-n", "4", program], {}, **WORKERS)
    assert code == 0, output
    expected = {0: "worker-0", 1: "worker-0", 2: "worker-1", 3: "worker-1"}
    assert places(output, 4) == expected, output


def test_a_launcher_runs_mpirun_and_no_rank(
    build: Path, tmp_path: Path, kind: str, program: str
) -> None:
    roles = with_launcher([f"mpirun.{kind}", program], workers=8)
    framework = {"type": "MPI", "processesPerReplica": 1}
    code, output = run_job(build, tmp_path, [], {}, framework=framework, roles=roles)
    assert code == 0, output
    assert places(output, 8) == {rank: f"worker-{rank}" for rank in range(8)}, output


def test_a_killed_rank_restarts_the_gang(
    build: Path, tmp_path: Path, kind: str, program: str
) -> None:
    command = [f"mpirun.{kind}", program]
    code, output = run_job(
        build,
        tmp_path,
        command,
        {"DIES": "1"},
        failurePolicy={"maxRestarts": 1, "gracePeriod": "5s"},
        **WORKERS,
    )
    assert code == 0, output
    assert re.search(r"^ *restarts +1$", output, re.MULTILINE), output
    # The first attempt's line may be lost with mpirun's connection.
    assert "[0] rank 3 of 4" in output.partition("attempt 1 starts")[2], output


def test_ranks_of_other_pods_are_asked_to_end_before_they_are_killed(
    build: Path, tmp_path: Path, kind: str
) -> None:
    rank = tmp_path / "rank.sh"
    rank.write_text("""
trap 'touch "saved-$PACELINE_ROLE-$PACELINE_REPLICA_INDEX"; exit 0' TERM
echo "rank on $PACELINE_ROLE-$PACELINE_REPLICA_INDEX trains"
while :; do sleep 0.1; done
""")
    command = run_of(
        build,
        tmp_path,
        [f"mpirun.{kind}", "sh", str(rank)],
        # Open MPI's daemons wait so long before they ask the ranks, and then before they kill them.
        {"OMPI_MCA_odls_base_sigkill_timeout": "10"},
        replicas=2,
        framework={"type": "MPI", "processesPerReplica": 1},
        failurePolicy={"gracePeriod": "60s"},
    )
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        output, trains = "", 0
        for line in process.stdout:
            output += line
            trains += "trains" in line
            if trains == 2 and "trains" in line:
                process.send_signal(signal.SIGINT)
    assert {path.name for path in tmp_path.glob("**/saved-*")} == {
        "saved-worker-0",
        "saved-worker-1",
    }, output


@pytest.mark.parametrize(
    ("flags", "remedy"),
    [
        (["-np", "3"], "-np 3 contradicts the job, which has 4 ranks"),
        (["--hostfile", "hosts"], "-hostfile hosts names hosts"),
        (["-host", "a,b"], "-host a,b names hosts"),
        (["--mca", "plm_rsh_agent", "ssh"], "plm_rsh_agent ssh says how to reach other hosts"),
    ],
)
def test_flags_that_contradict_the_job(
    build: Path, tmp_path: Path, flags: list[str], remedy: str
) -> None:
    code, output = run_job(build, tmp_path, ["mpirun", *flags, "./program"], {}, **WORKERS)
    assert code != 0, output
    assert remedy in output, output
    assert "remove" in output, output
