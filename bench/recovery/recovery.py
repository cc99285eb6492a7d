# SPDX-License-Identifier: Apache-2.0
"""How long a gang does not train after one of its ranks was killed, and where the seconds go.

The job is examples/digits-ddp.yaml, two replicas of two ranks, by `paceline run`. While it trains,
one rank gets SIGKILL. The time runs until all four ranks have done a training step again.

There are two contenders, with and without standby interpreters. They run in turns, since both train
on the same processors.

Run by bench/recovery/run.
"""

from __future__ import annotations

import argparse
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from marked import IMPORTED, JOINED, STARTED, STEPPED
from turns import conclude, in_turns, show

HERE = Path(__file__).resolve().parent
DIGITS = HERE.parents[1] / "examples" / "digits" / "train.py"
JOB = HERE.parents[1] / "examples" / "digits-ddp.yaml"
BAR_SECONDS = 3.0
PATIENCE = 300.0  # seconds for a start, or until standbys are ready
UNDER_WAY = 3.0  # seconds of training before a rank is killed
# What each part of a recovery ends with, in order.
PARTS = {
    "detect": "the gang restarts in place",
    "stop": "attempt",
    "start": STARTED,
    "import": IMPORTED,
    "join": JOINED,
    "first step": STEPPED,
}
STANDBY = {"with": "Auto", "without": "Disabled"}
READY = "standby interpreters are ready"


class Missed(Exception):
    """The job did not do what the measurement expects."""


class Job:
    """A running digits-ddp. Its ranks note their stages in a pipe that this process holds open."""

    def __init__(self, options: argparse.Namespace, contender: str, folder: Path) -> None:
        spec = yaml.safe_load(JOB.read_text())
        self.contender = contender
        self.replicas = spec["spec"]["roles"][0]["replicas"]
        self.ranks = self.replicas * spec["spec"]["framework"]["processesPerReplica"]
        pipe = folder / "pipe"
        os.mkfifo(pipe)
        (container,) = spec["spec"]["roles"][0]["template"]["spec"]["containers"]
        container["command"] = [options.python, str(HERE / "marked.py"), str(DIGITS)]
        container["args"] = ["--epochs", "1000000", "--checkpoint", str(folder / "digits.pt")]
        container["env"] = [
            {"name": "RECOVERY_PIPE", "value": str(pipe)},
            {"name": "PACELINE_STANDBY", "value": STANDBY[contender]},
        ]
        spec["spec"]["failurePolicy"]["maxRestarts"] = 1000
        file = folder / "job.yaml"
        file.write_text(yaml.safe_dump(spec))
        self.log: list[tuple[float, str]] = []
        self.marks: dict[tuple[int, str], float] = {}  # of the attempt, by rank and stage
        self.pids: dict[int, int] = {}
        # Opened for writing too, so that reading does not end while no rank writes.
        self.pipe = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self.process = subprocess.Popen(
            [options.paceline, "run", "-f", str(file)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.rest = {self.pipe: b"", self.process.stdout.fileno(): b""}
        self.selector = selectors.DefaultSelector()
        for descriptor in self.rest:
            self.selector.register(descriptor, selectors.EVENT_READ)

    def read(self, limit: float) -> None:
        """Reads what comes next, and waits for it until the time-out."""
        for key, _ in self.selector.select(limit):
            part = os.read(key.fd, 65536)
            now = time.monotonic()
            if not part:
                raise Missed("the job has ended:\n" + self.last_lines())
            *lines, self.rest[key.fd] = (self.rest[key.fd] + part).split(b"\n")
            for line in lines:
                if key.fd != self.pipe:
                    self.log.append((now, line.decode(errors="replace")))
                    continue
                rank, pid, stage, at = line.split()
                self.pids[int(rank)] = int(pid)
                self.marks[int(rank), stage.decode()] = float(at)

    def last_lines(self) -> str:
        return "\n".join(text for _, text in self.log[-30:])

    def wait_for(self, what: str, done: Any) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            if time.monotonic() > deadline:
                raise Missed(f"no {what} within {PATIENCE:.0f} s:\n{self.last_lines()}")
            self.read(1.0)

    def wait_for_steps(self) -> None:
        self.wait_for(
            "step of all ranks",
            lambda: all((rank, STEPPED) in self.marks for rank in range(self.ranks)),
        )

    def said(self, text: str) -> int:
        return sum(text in line for _, line in self.log)

    def settle(self) -> None:
        """Waits until the job trains as it would for hours."""
        self.wait_for_steps()
        if self.contender == "with":
            self.wait_for("standbys", lambda: self.said(READY) >= self.replicas)
        deadline = time.monotonic() + UNDER_WAY
        while (left := deadline - time.monotonic()) > 0:
            self.read(left)

    def recover(self, number: int) -> dict[str, float]:
        """Kills one rank after the other; the seconds of each part, and of all."""
        self.settle()
        self.log.clear()
        self.marks.clear()
        ends = [time.monotonic()]
        os.kill(self.pids[number % self.ranks], signal.SIGKILL)
        self.wait_for_steps()
        for end in PARTS.values():
            if end in (STARTED, IMPORTED, JOINED, STEPPED):
                ends.append(max(self.marks[each, end] for each in range(self.ranks)))
            else:
                ends.append(next(at for at, line in self.log if end in line))
        parts = dict(zip(PARTS, (b - a for a, b in zip(ends, ends[1:])), strict=True))
        return {**parts, "all": ends[-1] - ends[0]}

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
        os.close(self.pipe)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--paceline", required=True, metavar="PROGRAM")
    parser.add_argument("--python", required=True, metavar="INTERPRETER")
    parser.add_argument("--kills", type=int, default=20, help="of each contender")
    parser.add_argument("--turns", type=int, default=2, help="jobs of each contender")
    options = parser.parse_args()
    try:
        recoveries = in_turns(
            STANDBY, options.kills, options.turns, lambda name, folder: Job(options, name, folder)
        )
    except Missed as problem:
        print(f"bench: {problem}", file=sys.stderr)
        return 1
    for contender, measured in recoveries.items():
        show(f"{contender} standby interpreters", measured)
    return conclude(
        "recovery",
        BAR_SECONDS,
        options.python,
        recoveries["with"],
        "without standby interpreters",
        recoveries["without"],
    )


if __name__ == "__main__":
    sys.exit(main())
