# SPDX-License-Identifier: Apache-2.0
"""Runs an example by `paceline run` with the interpreter of a framework, and watches it: its
output, its processes and its metrics.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ports import free_port

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def environment(framework: str) -> Path:
    """The interpreter of a framework's environment, which is made if it is not there."""
    made = subprocess.run(
        [ROOT / "scripts" / "framework-env", framework],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Path(made.stdout.strip().splitlines()[-1])


def version(python: Path, package: str) -> str:
    """The version of an installed package."""
    program = f"from importlib import metadata; print(metadata.version({package!r}))"
    return subprocess.run(
        [python, "-c", program], capture_output=True, text=True, check=True
    ).stdout.strip()


def descendants(root: int) -> list[int]:
    """Processes below one, by /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = [root]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found[1:]


@dataclass
class Run:
    """A job that runs, and what its metrics have said until now."""

    process: subprocess.Popen[bytes]
    log: Path
    metrics: int  # the port that serves them
    steps: dict[str, float] = field(default_factory=dict)  # the largest count, by rank
    phases: set[str] = field(default_factory=set)
    restarts: float = 0

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def poll(self) -> None:
        """Reads the metrics, if the job still serves them."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.metrics}/metrics", timeout=5
            ) as it:
                text = it.read().decode()
        except (urllib.error.URLError, OSError):
            return
        for rank, count in re.findall(
            r'^paceline_steps_total\{.*rank="(\d+)".*\} (\S+)$', text, re.M
        ):
            self.steps[rank] = max(self.steps.get(rank, 0), float(count))
        for phase, seconds in re.findall(
            r'^paceline_step_phase_seconds_total\{.*phase="(\w+)".*\} (\S+)$', text, re.M
        ):
            if float(seconds) > 0:
                self.phases.add(phase)
        for count in re.findall(r"^paceline_job_restarts_total\{.*\} (\S+)$", text, re.M):
            self.restarts = max(self.restarts, float(count))

    def wait_until(self, what: str, ready: Callable[[], bool], seconds: float) -> None:
        """Waits for a condition while the job runs. Its end before that is a failure."""
        deadline = time.monotonic() + seconds
        while not ready():
            ended = self.process.poll()
            assert ended is None, f"the job ended with {ended} before {what}:\n{self.tail()}"
            assert time.monotonic() < deadline, f"no {what} after {seconds} s:\n{self.tail()}"
            self.poll()
            time.sleep(0.05)

    def wait(self, seconds: float) -> int:
        """The exit code of the job."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still running after {seconds} s:\n{self.tail()}"
            self.poll()
            time.sleep(0.05)
        return self.process.returncode

    def kill(self, script: str, variable: str) -> None:
        """Kills the one process that runs the script and was told this variable."""
        victims = []
        for process in descendants(self.process.pid):
            try:
                told = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
                command = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if (
                variable.encode() in told
                and b"python" in command[0]
                and any(word.endswith(f"/{script}".encode()) for word in command)
            ):
                victims.append(process)
        assert victims, f"no process of {script} with {variable}:\n{self.tail()}"
        os.kill(victims[-1], signal.SIGKILL)

    def tail(self) -> str:
        return self.output[-4000:]

    def end(self) -> None:
        """Ends the job, if it still runs."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def start(build: Path, job: Path, python: Path, folder: Path) -> Run:
    """Starts a job file. `python3` of its command is the framework's."""
    log, port = folder / "output.log", free_port()
    paceline = str(build / "bin" / "paceline")
    command = [paceline, "run", "-f", str(job)]
    command += ["--map", f"/workspace={EXAMPLES}", "--metrics-listen", f"127.0.0.1:{port}"]
    more = {
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        # What scripts/framework-env has compiled for DeepSpeed.
        "TORCH_EXTENSIONS_DIR": str(python.parent.parent / "extensions"),
        # mpirun refuses to work for root unless both are set.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **more},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    return Run(process, log, port)
