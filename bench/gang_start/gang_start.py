# SPDX-License-Identifier: Apache-2.0
"""How long 64 ranks of a program take to start on 8 replicas, once the first launcher is started.

The ranks are a shell that writes one line and sleeps, so that no framework's start-up is in the
figure. Two contenders take turns, and run the same command:

- paceline: `paceline run` of a Custom job. Its 8 launchers, one for each replica, gather over
  sockets and start 8 ranks each
- mpirun: Open MPI starts 64 ranks on one host, so it starts no daemons on others

The time begins before `paceline run` or mpirun is executed, so it includes the start of the
launchers themselves. On a cluster they start with their pods.

Run by bench/gang_start/run.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPLICAS, PROCESSES = 8, 8
RANKS = REPLICAS * PROCESSES
BAR_SECONDS = 2.0
PATIENCE_SECONDS = 60.0
# Atomic: a line is shorter than one write to a pipe may be.
SCRIPT = """echo "${RANK:-$OMPI_COMM_WORLD_RANK}" > "$GANG_PIPE"
exec sleep 1000000
"""


class Missed(Exception):
    """A contender did not start all ranks."""


def paceline_command(folder: Path, program: str, script: Path, pipe: Path) -> list[str]:
    trainer = {
        "name": "trainer",
        "image": "none",
        "command": ["sh", str(script)],
        "env": [{"name": "GANG_PIPE", "value": str(pipe)}],
    }
    role = {
        "name": "worker",
        "replicas": REPLICAS,
        "template": {"spec": {"containers": [trainer]}},
    }
    job = {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "start"},
        "spec": {
            "framework": {"type": "Custom", "processesPerReplica": PROCESSES},
            "roles": [role],
        },
    }
    file = folder / "job.yaml"
    file.write_text(json.dumps(job))
    return [program, "run", "-f", str(file)]


def mpirun_command(script: Path) -> list[str]:
    flags = ["--allow-run-as-root", "--oversubscribe", "-np", str(RANKS)]
    return ["mpirun.openmpi", *flags, "sh", str(script)]


def seconds_until_all_run(command: list[str], pipe: Path, log: Path) -> float:
    """Starts a gang, waits for the line of every rank, and ends the gang."""
    # Opened for writing too, so that reading does not end while no rank writes.
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    with log.open("wb") as output:
        began = time.monotonic()
        process = subprocess.Popen(
            command,
            env={**os.environ, "GANG_PIPE": str(pipe)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    started: set[int] = set()
    rest = b""
    try:
        while len(started) < RANKS:
            left = began + PATIENCE_SECONDS - time.monotonic()
            if not select.select([reader], [], [], max(left, 0))[0]:
                said = log.read_text(errors="replace")[-1500:]
                raise Missed(f"{command[0]}: only {len(started)} ranks started:\n{said}")
            *lines, rest = (rest + os.read(reader, 65536)).split(b"\n")
            started.update(int(line) for line in lines)
        return time.monotonic() - began
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(reader)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--paceline", required=True, metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    seconds: dict[str, list[float]] = {"paceline": [], "mpirun": []}
    with tempfile.TemporaryDirectory(prefix="paceline-start-") as name:
        folder = Path(name)
        pipe, script = folder / "pipe", folder / "rank.sh"
        os.mkfifo(pipe)
        # A file, because both contenders expand dollar signs in a command.
        script.write_text(SCRIPT)
        program = str(Path(options.paceline).resolve())
        commands = {
            "paceline": paceline_command(folder, program, script, pipe),
            "mpirun": mpirun_command(script),
        }
        try:
            for number in range(options.rounds):
                # Who goes first alternates, so that a drift of the machine favours neither.
                for contender in sorted(commands, reverse=number % 2 == 1):
                    log = folder / f"{contender}.log"
                    seconds[contender].append(seconds_until_all_run(commands[contender], pipe, log))
        except Missed as problem:
            print(f"bench: {problem}", file=sys.stderr)
            return 1
    for contender, values in seconds.items():
        print(f"{contender}: {' '.join(f'{value * 1e3:.0f}' for value in sorted(values))} ms")
    ours, theirs = seconds["paceline"], seconds["mpirun"]
    result = {
        "bench": "gang_start",
        "ratio": round(statistics.median(theirs) / statistics.median(ours), 2),
        "baseline": "mpirun of Open MPI, one host",
        "median_ms": round(statistics.median(ours) * 1e3),
        "worst_ms": round(max(ours) * 1e3),
        "baseline_median_ms": round(statistics.median(theirs) * 1e3),
        "rounds": len(ours),
        "replicas": REPLICAS,
        "ranks": RANKS,
        "bar_ms": BAR_SECONDS * 1e3,
        "load": round(load, 1),
    }
    print(json.dumps(result))
    if max(ours) > BAR_SECONDS:
        print(f"the bar is missed: the slowest start took {max(ours):.2f} s", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
