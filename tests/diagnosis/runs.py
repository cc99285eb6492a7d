# SPDX-License-Identifier: Apache-2.0
"""Runs a faulty program under the real launcher, and notes which findings its log tells when."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from launch.local import run_of

PROGRAM = Path(__file__).parent / "faulty.py"
FLOOR = "5s"
# Summaries come every 2 s, so a window is 2 s at least.
SETTINGS = {"PACELINE_HANG_AFTER": FLOOR, "PACELINE_DIAGNOSIS_WINDOW": "1s"}
FINDING = re.compile(r"\[paceline\] finding: (\S+?)(?: \((\w+)\))?(?:, rank (\d+)[^:]*)?: (.*)")


@dataclass
class Verdict:
    kind: str
    subject: str
    rank: int | None
    text: str
    after: float  # seconds since the fault began

    def __str__(self) -> str:
        about = f" ({self.subject})" if self.subject else ""
        return f"{self.kind}{about}" + ("" if self.rank is None else f" of rank {self.rank}")


@dataclass
class Told:
    """What a run has told."""

    verdicts: list[Verdict] = field(default_factory=list)
    stacks: set[int] = field(default_factory=set)  # of these ranks
    output: str = ""
    began: float | None = None

    def read(self, line: str) -> None:
        now = time.monotonic()
        self.output += line
        if "fault begins" in line:
            self.began = now
        if shown := re.search(r"\[paceline(?: \d+)?\] stacks of rank (\d+):", line):
            self.stacks.add(int(shown[1]))
        after = now - (self.began or now)
        if found := FINDING.search(line):
            rank = None if found[3] is None else int(found[3])
            self.verdicts.append(Verdict(found[1], found[2] or "", rank, found[4], after))


def run(
    build: Path,
    folder: Path,
    fault: str,
    *,
    ranks: int = 2,
    seconds: float = 60,
    until: Callable[[Told], bool] = lambda told: bool(told.verdicts),
    on_begin: Callable[[], None] = lambda: None,
    within: tuple[str, ...] = (),
    settings: dict[str, str] | None = None,
) -> Told:
    """Ends the job when `until` holds, or so long after the fault began."""
    environment = {**SETTINGS, "FAULT": fault, **(settings or {})}
    command = run_of(
        build,
        folder,
        [sys.executable, str(PROGRAM)],
        environment,
        replicas=ranks,
        acceleration={"mode": "Disabled"},  # it would heal some of the faults
        failurePolicy={"maxRestarts": 0, "gracePeriod": "1s"},
    )
    told = Told()
    job = subprocess.Popen(
        [*within, *command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert job.stdout is not None
    os.set_blocking(job.stdout.fileno(), False)
    started, rest = time.monotonic(), ""
    try:
        while job.poll() is None:
            rest += _read(job.stdout.fileno())
            *lines, rest = rest.split("\n")
            for line in lines:
                told.read(line + "\n")
                if "fault begins" in line:
                    on_begin()
            now = time.monotonic()
            late = told.began is not None and now - told.began > seconds
            if (told.began and until(told)) or late or now - started > seconds + 60:
                break
            time.sleep(0.02)
    finally:
        if job.poll() is None:
            job.send_signal(signal.SIGTERM)
        try:
            job.wait(timeout=20)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        for line in (rest + _read(job.stdout.fileno())).splitlines():
            told.read(line + "\n")
        job.stdout.close()
    return told


def _read(descriptor: int) -> str:
    text = b""
    with contextlib.suppress(BlockingIOError):
        while part := os.read(descriptor, 65536):
            text += part
    return text.decode(errors="replace")
