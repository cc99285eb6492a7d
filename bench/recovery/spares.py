# SPDX-License-Identifier: Apache-2.0
"""How long a gang does not train after a node has fallen silent, with and without a spare.

The job is that of examples/digits-ddp.yaml: two replicas of two ranks. Each replica's launcher is
started as in its pod. While the job trains, the launcher and the ranks of one replica are stopped
(SIGSTOP): their sockets stay open, and they say nothing more. The time runs until all four ranks
have done a training step again.

With a spare a third launcher stands by. Without one, the next launcher of the replica is started in
the moment in which rank 0's launcher misses it. No cluster is that fast: a node has to be called
lost, and a pod to be created. The contenders run in turns.

Run by bench/recovery/run.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from marked import IMPORTED, JOINED, STARTED, STEPPED
from recovery import DIGITS, HERE, PATIENCE, READY, UNDER_WAY, Missed
from turns import conclude, in_turns, show

BAR_SECONDS = 10.0
PLACES, RANKS_OF_EACH = 2, 2
SPARES = {"with": 1, "without": 0}
# What each part of a recovery ends with, in order.
PARTS = {
    "detect": "has been silent",
    "stop": "replicas are here",
    "start": STARTED,
    "import": IMPORTED,
    "join": JOINED,
    "first step": STEPPED,
}


def below(parent: int) -> list[int]:
    """A process's children, and theirs."""
    told = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [pid for child in map(int, told) for pid in (child, *below(child))]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class Gang:
    """Launchers on this machine. Their ranks note their stages in a pipe that is held open."""

    def __init__(self, options: argparse.Namespace, contender: str, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.spares = SPARES[contender]
        self.address = f"127.0.0.1:{free_port()}"
        self.pipe_file = folder / "pipe"
        os.mkfifo(self.pipe_file)
        self.pipe = os.open(self.pipe_file, os.O_RDWR | os.O_NONBLOCK)
        self.rest = b""
        self.marks: dict[tuple[int, str], float] = {}  # since the last kill, by rank and stage
        self.launchers: dict[int, subprocess.Popen[bytes]] = {}  # by the node rank of their start
        self.incarnations = [0] * (PLACES + self.spares)
        self.at_place_1 = 1  # which of them runs the ranks of node rank 1
        self.said = 0  # bytes of rank 0's log that belong to earlier kills
        self.began: dict[int, int] = {}  # bytes of a log before its launcher's last start
        for node in range(PLACES + self.spares):
            self.launch(node)

    def launch(self, node: int) -> None:
        state = self.folder / f"state-{node}-{self.incarnations[node]}"
        variables = {
            "JOB_NAME": "digits",
            "JOB_UID": "bench",
            "ROLE": "worker",
            "NODE_RANK": node,
            "NODE_COUNT": PLACES,
            "SPARES": self.spares,
            "REPLICA_INDEX": node,
            "INCARNATION": self.incarnations[node],
            "POD_NAME": f"digits-worker-{node}-{self.incarnations[node]}",
            "POD_IP": "127.0.0.1",
            "PROCESSES_PER_REPLICA": RANKS_OF_EACH,
            "RENDEZVOUS_ADDRESS": self.address,
            "RENDEZVOUS_LISTEN": self.address,
            "MASTER_PORT": 0,
            "TOKEN": "bench",
            "GRACE_PERIOD": "5s",
            "RUNTIME_DIR": self.options.runtime,
            "STATE_DIR": state,
            "TERMINATION_LOG": f"{state}.end",
        }
        program = [self.options.python, str(HERE / "marked.py"), str(DIGITS)]
        program += ["--epochs", "1000000", "--checkpoint", str(self.folder / "digits.pt")]
        with self.log_file(node).open("ab") as log:
            self.began[node] = log.tell()
            self.launchers[node] = subprocess.Popen(
                [self.options.launcher, "run", "--", *program],
                env=os.environ
                | {"RECOVERY_PIPE": str(self.pipe_file)}
                | {f"PACELINE_{name}": str(value) for name, value in variables.items()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def log_file(self, node: int) -> Path:
        return self.folder / f"log-{node}"

    def told(self) -> str:
        """What rank 0's launcher has said since the last kill."""
        return self.log_file(0).read_bytes()[self.said :].decode(errors="replace")

    def said_by(self, node: int) -> str:
        """What the launcher has said since it was started."""
        return self.log_file(node).read_bytes()[self.began[node] :].decode(errors="replace")

    def wait_for(self, what: str, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            if time.monotonic() > deadline:
                raise Missed(f"no {what} within {PATIENCE:.0f} s:\n{self.told()[-4000:]}")
            time.sleep(0.01)
            self.read()

    def read(self) -> None:
        try:
            text = self.rest + os.read(self.pipe, 65536)
        except BlockingIOError:
            return
        *lines, self.rest = text.split(b"\n")
        for line in lines:
            rank, _, stage, at = line.split()
            self.marks[int(rank), stage.decode()] = float(at)

    def all_reached(self, stage: str) -> bool:
        return all((rank, stage) in self.marks for rank in range(PLACES * RANKS_OF_EACH))

    def settle(self) -> None:
        """Waits until the job trains as it would for hours."""
        self.wait_for("step of all ranks", lambda: self.all_reached(STEPPED))
        self.wait_for("standbys of rank 0's replica", lambda: READY in self.told())
        if self.spares:
            spare = 3 - self.at_place_1
            self.wait_for("spare", lambda: "stands by" in self.told())
            self.wait_for("standbys of the spare", lambda: READY in self.said_by(spare))
        deadline = time.monotonic() + UNDER_WAY
        self.wait_for("time", lambda: time.monotonic() > deadline)

    def recover(self, _: int) -> dict[str, float]:
        """Freezes the replica at node rank 1; the seconds of each part, and of all."""
        self.settle()
        self.said = self.log_file(0).stat().st_size
        frozen = self.launchers[self.at_place_1]
        processes = [frozen.pid, *below(frozen.pid)]
        self.marks.clear()
        ends = [time.monotonic()]
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        lost = self.at_place_1
        self.incarnations[lost] += 1
        try:
            for end in PARTS.values():
                if end in (STARTED, IMPORTED, JOINED, STEPPED):
                    self.wait_for(end, lambda: self.all_reached(end))  # noqa: B023 - called here
                    ends.append(max(self.marks[r, end] for r in range(PLACES * RANKS_OF_EACH)))
                    continue
                self.wait_for(end, lambda: end in self.told())  # noqa: B023
                ends.append(time.monotonic())
                if end == PARTS["detect"] and not self.spares:
                    self.launch(lost)
        finally:
            for pid in processes:
                os.kill(pid, signal.SIGKILL)
            frozen.wait()
        if self.spares:
            self.at_place_1 = 3 - lost
            self.launch(lost)  # stands by in its turn
        parts = dict(zip(PARTS, (b - a for a, b in zip(ends, ends[1:])), strict=True))
        return {**parts, "all": ends[-1] - ends[0]}

    def end(self) -> None:
        for one in self.launchers.values():
            for pid in [one.pid, *below(one.pid)] if one.poll() is None else []:
                os.kill(pid, signal.SIGKILL)
            one.wait()
        os.close(self.pipe)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--launcher", required=True, metavar="PROGRAM")
    parser.add_argument("--runtime", required=True, metavar="FOLDER")
    parser.add_argument("--python", required=True, metavar="INTERPRETER")
    parser.add_argument("--losses", type=int, default=20, help="of each contender")
    parser.add_argument("--turns", type=int, default=2, help="jobs of each contender")
    options = parser.parse_args()
    try:
        recoveries = in_turns(
            SPARES, options.losses, options.turns, lambda name, folder: Gang(options, name, folder)
        )
    except Missed as problem:
        print(f"bench: {problem}", file=sys.stderr)
        return 1
    for contender, measured in recoveries.items():
        show(f"{contender} a spare", measured)
    return conclude(
        "spares",
        BAR_SECONDS,
        options.python,
        recoveries["with"],
        "another launcher at once",
        recoveries["without"],
    )


if __name__ == "__main__":
    sys.exit(main())
