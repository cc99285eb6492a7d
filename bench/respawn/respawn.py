# SPDX-License-Identifier: Apache-2.0
"""How long a gang stands still after one of its ranks was killed.

There are two replicas of two ranks. One rank gets SIGKILL, and the time runs until all four ranks
have started again and reported. The ranks are a shell that writes one line and sleeps, so that no
framework's start-up is in the figure.

Two contenders run side by side through the whole benchmark and take turns. Their ranks run the same
command:

- paceline: the real launchers, as `paceline run` starts them, restarting in place
- torchrun: two elastic agents of the pinned PyTorch (--rdzv-backend=c10d, --max-restarts), with
  defaults otherwise

Run by bench/respawn/run.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPLICAS, RANKS = 2, 4
BAR_SECONDS = 1.0
# Atomic: a line is shorter than one write to a pipe may be.
SCRIPT = """echo "$RANK $$" > "$RESPAWN_PIPE"
exec sleep 1000000
"""


class Missed(Exception):
    """A contender did not restart its ranks as the measurement expects."""


class Contender:
    """A running gang. Its ranks report into a pipe that this process holds open."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self.pipe = self.folder / "pipe"
        os.mkfifo(self.pipe)
        # A file, because both contenders expand dollar signs in a command.
        self.script = self.folder / "rank.sh"
        self.script.write_text(SCRIPT)
        # Opened for writing too, so that reading does not end while no rank writes.
        self.reader = os.open(self.pipe, os.O_RDWR | os.O_NONBLOCK)
        self.rest = b""
        self.pids: dict[int, int] = {}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.seconds: list[float] = []

    def start(self, command: list[str], **environment: str) -> None:
        log = (self.folder / f"log{len(self.processes)}").open("wb")
        self.processes.append(
            subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, "RESPAWN_PIPE": str(self.pipe), **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        )

    def reports(self, limit: float) -> list[tuple[int, int]]:
        """Waits for lines until the time-out; returns the rank and pid of each."""
        if not select.select([self.reader], [], [], max(limit, 0))[0]:
            return []
        *lines, self.rest = (self.rest + os.read(self.reader, 65536)).split(b"\n")
        return [(int(rank), int(pid)) for rank, pid in (line.split() for line in lines)]

    def wait_for_all(self, limit: float) -> float:
        """The time at which the last rank reported that it runs."""
        deadline = time.monotonic() + limit
        started: dict[int, int] = {}
        while len(started) < RANKS:
            left = deadline - time.monotonic()
            if left <= 0:
                logs = "".join(
                    log.read_text(errors="replace")[-1500:] for log in self.folder.glob("log*")
                )
                raise Missed(
                    f"{self.name}: only ranks {sorted(started)} came back within {limit:.0f}"
                    f" s:\n{logs}"
                )
            started.update(self.reports(left))
        self.pids = started
        return time.monotonic()

    def settle(self) -> None:
        """Waits until no rank reports any more.

        After a restart in two stages, the next round needs the pids of the last stage.
        """
        while reports := self.reports(0.3):
            self.pids.update(reports)

    def measure(self, rank: int) -> None:
        self.settle()
        killed = time.monotonic()
        os.kill(self.pids[rank], signal.SIGKILL)
        self.seconds.append(self.wait_for_all(60) - killed)

    def end(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        os.close(self.reader)


def start_paceline(contender: Contender, program: str, restarts: int) -> None:
    trainer = {
        "name": "trainer",
        "image": "none",
        "command": ["sh", str(contender.script)],
        "env": [{"name": "RESPAWN_PIPE", "value": str(contender.pipe)}],
    }
    job = {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "respawn"},
        "spec": {
            "framework": {"type": "Custom", "processesPerReplica": RANKS // REPLICAS},
            "failurePolicy": {"maxRestarts": restarts},
            "roles": [
                {
                    "name": "worker",
                    "replicas": REPLICAS,
                    "template": {"spec": {"containers": [trainer]}},
                }
            ],
        },
    }
    file = contender.folder / "job.yaml"
    file.write_text(json.dumps(job))
    contender.start([program, "run", "-f", str(file)])


def start_torchrun(contender: Contender, python: str, restarts: int) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = [
        f"--nnodes={REPLICAS}",
        f"--nproc-per-node={RANKS // REPLICAS}",
        f"--max-restarts={restarts}",
    ]
    flags += [
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{port}",
        "--rdzv-id=respawn",
        "--no-python",
    ]
    for _ in range(REPLICAS):
        contender.start(
            [python, "-m", "torch.distributed.run", *flags, "sh", str(contender.script)]
        )


def summary(contenders: dict[str, Contender], torch: str) -> dict[str, Any]:
    ours, theirs = contenders["paceline"].seconds, contenders["torchrun"].seconds
    return {
        "bench": "respawn",
        "ratio": round(statistics.median(theirs) / statistics.median(ours), 2),
        "baseline": f"torchrun {torch}, c10d, defaults",
        "median_ms": round(statistics.median(ours) * 1e3, 1),
        "worst_ms": round(max(ours) * 1e3, 1),
        "baseline_median_ms": round(statistics.median(theirs) * 1e3, 1),
        "baseline_worst_ms": round(max(theirs) * 1e3, 1),
        "rounds": len(ours),
        "replicas": REPLICAS,
        "ranks": RANKS,
        "bar_ms": BAR_SECONDS * 1e3,
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--paceline", required=True, metavar="PROGRAM")
    parser.add_argument("--torch-python", required=True, metavar="INTERPRETER")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    if os.getloadavg()[0] > 1:
        print(
            f"the machine is busy (load {os.getloadavg()[0]:.1f}): these figures are not to be"
            " kept",
            flush=True,
        )
    version = [options.torch_python, "-c", "import torch; print(torch.__version__)"]
    torch = subprocess.run(version, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="paceline-respawn-") as folder:
        contenders = {name: Contender(name, Path(folder)) for name in ("paceline", "torchrun")}
        try:
            start_paceline(
                contenders["paceline"], str(Path(options.paceline).resolve()), options.rounds
            )
            start_torchrun(contenders["torchrun"], options.torch_python, options.rounds)
            for contender in contenders.values():
                contender.wait_for_all(120)
            for number in range(options.rounds):
                # Who goes first alternates, so that a drift of the machine favours neither; every
                # rank dies in its turn.
                for name in sorted(contenders, reverse=number % 2 == 1):
                    contenders[name].measure(number % RANKS)
        except Missed as problem:
            print(f"bench: {problem}", file=sys.stderr)
            return 1
        finally:
            for contender in contenders.values():
                contender.end()
    for name, contender in contenders.items():
        milliseconds = sorted(value * 1e3 for value in contender.seconds)
        print(f"{name}: {' '.join(f'{value:.0f}' for value in milliseconds)} ms")
    result = summary(contenders, torch)
    if result["worst_ms"] > result["bar_ms"]:
        print(
            f"the bar is missed: the slowest restart took {result['worst_ms']} ms", file=sys.stderr
        )
    print(json.dumps(result))
    return 1 if result["worst_ms"] > result["bar_ms"] else 0


if __name__ == "__main__":
    sys.exit(main())
