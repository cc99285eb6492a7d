# SPDX-License-Identifier: Apache-2.0
"""Starts the runs of one recipe side by side, and lets one at a time go on for a window of steps.
The others are stopped, with their loaders' workers. So the windows of a pair have the same steps,
at nearly the same time, and a noisy machine is equally noisy to both.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from catalogue import PAIRS, WARM_UP, Recipe

RUNNER = Path(__file__).parent / "runner.py"
PATIENCE = 600.0  # seconds for one window, for a start, or until all is tuned
NEVER = "1e9"  # seconds
JOB = {
    "without": {"mode": "Disabled"},
    "again": {"mode": "Disabled"},  # the control: without, once more
    "with": {},
    "lossy": {"numerics": "Lossy", "precision": "O1"},
}


class Failed(RuntimeError):
    """A run has ended too early, or takes too long. The text has the end of its output."""


@dataclass(frozen=True)
class Place:
    """Where the runs of this bench find what they need."""

    build: Path
    data: Path
    python: Path  # the interpreter of the environment


@dataclass
class Run:
    """One started run of a recipe."""

    recipe: Recipe
    variant: str
    folder: Path
    place: Place
    windows: list[float] = field(default_factory=list)  # seconds a step
    told: dict[str, Any] = field(default_factory=dict)  # of the last window
    tuning: float = 0.0  # seconds until nothing was tried any more

    def start(self) -> None:
        self.folder.mkdir(parents=True)
        (self.folder / "data").symlink_to(self.place.data)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / "gate"))
        self._listener.listen(1)
        self._log = self.folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command(),
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def warm_up(self) -> None:
        """Returns when the warm-up is over and the run is stopped."""
        self._listener.settimeout(1)
        self._socket = self._accept(time.monotonic() + PATIENCE)
        self._socket.settimeout(PATIENCE)
        self._lines = self._socket.makefile("r", encoding="utf-8")
        self._await()

    def window(self) -> None:
        """Lets the run go on for one window."""
        self._go(b"g")

    def tune(self) -> None:
        """Lets the run go on until everything has been tried that can be."""
        began = time.monotonic()
        self._go(b"t")
        self.tuning = time.monotonic() - began

    def _go(self, word: bytes) -> None:
        self._signal(signal.SIGCONT)
        self._socket.sendall(word)
        self._await()

    def kill(self) -> None:
        process = getattr(self, "_process", None)
        if process is None or process.poll() is not None:
            return
        self._signal(signal.SIGKILL)
        process.terminate()
        process.wait()

    def _await(self) -> None:
        try:
            line = self._lines.readline()
        except TimeoutError:
            raise self._failed(f"no window within {PATIENCE:.0f} s") from None
        if not line:
            raise self._failed("it ended before its last window")
        self._signal(signal.SIGSTOP)
        self.told = json.loads(line)
        if "seconds" in self.told:
            self.windows.append(self.told["seconds"])

    def _accept(self, deadline: float) -> socket.socket:
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                return self._listener.accept()[0]
            except TimeoutError:
                continue
        raise self._failed("it has not started")

    def _failed(self, why: str) -> Failed:
        text = self._log.read_text(errors="replace")[-3000:]
        return Failed(f"{self.recipe.name}, {self.variant}: {why}\n{text}")

    def _signal(self, number: signal.Signals) -> None:
        """To the training processes and what they started. The launcher goes on."""
        for pid in (self._process.pid, *descendants(self._process.pid)):
            try:
                if not Path(f"/proc/{pid}/comm").read_text().startswith("paceline"):
                    os.kill(pid, number)
            except (FileNotFoundError, ProcessLookupError):
                continue

    def _command(self) -> list[str]:
        job = self.folder / "job.json"  # YAML, too
        job.write_text(json.dumps(self._job()))
        return [str(self.place.build / "bin" / "paceline"), "run", "-f", str(job)]

    def training(self) -> list[str]:
        """The words that start the recipe."""
        recipe = self.recipe
        return [
            *(str(self.place.python), str(RUNNER), str(recipe.script), "--gate", "gate"),
            *("--warm-up", str(WARM_UP), "--window", str(recipe.window)),
            *("--mark", recipe.mark),
        ]

    def _job(self) -> dict[str, Any]:
        recipe = self.recipe
        container = {"name": "trainer", "command": self.training()}
        template = {"spec": {"containers": [container]}}
        return {
            "apiVersion": "paceline.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": recipe.name.replace("_", "-")},
            "spec": {
                "framework": {"type": "PyTorch", "processesPerReplica": recipe.ranks},
                "acceleration": JOB[self.variant],
                "failurePolicy": {"maxRestarts": 0},
                "roles": [{"name": "worker", "replicas": 1, "template": template}],
            },
        }

    def _environment(self) -> dict[str, str]:
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(self.folder / "huggingface"),
            "TQDM_DISABLE": "1",
            # Threads of OpenMP spin while they wait. On shared processors they would spin in the
            # time of the thread that they wait for.
            "OMP_WAIT_POLICY": "passive",
            # Changes are tried at once, and only where the windows are those after the trials.
            "PACELINE_TUNE_AFTER": "0" if self.variant == "with" else NEVER,
            "PACELINE_LEARNED_DIR": str(self.folder / "learned"),
        }
        if JOB[self.variant].get("mode") == "Disabled":
            environment["PACELINE_DISABLE"] = "1"
        return environment


def descendants(pid: int) -> list[int]:
    """All processes below this one."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(int(fields[1]), []).append(int(folder.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def measure(
    recipe: Recipe,
    folder: Path,
    place: Place,
    most: int = PAIRS,
    variants: Iterable[str] = JOB,
    made: type[Run] = Run,
) -> dict[str, Run]:
    """The runs of a recipe, by variant. They are killed when their windows are made."""
    runs = {name: made(recipe, name, folder / name, place) for name in variants}
    order = list(runs.values())
    try:
        for run in order:
            run.start()
        for run in order:
            run.warm_up()
        runs["with"].tune()
        for turn in range(min(PAIRS, most)):
            # Each is the first of a turn as often as the others.
            for run in order[turn % len(order) :] + order[: turn % len(order)]:
                run.window()
    finally:
        for run in order:
            run.kill()
    return runs
