# SPDX-License-Identifier: Apache-2.0
"""Starts the commands of scripts/test, routes their output to lanes, and ends them with the run.

A lane is a thread that runs suites one after another. Every function here is safe to call from
several lanes at once.
"""

from __future__ import annotations

import concurrent.futures
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from testing.results import cause

ROOT = Path(__file__).resolve().parent.parent.parent


class Failure(Exception):
    """A step failed; the message says what failed and what helps."""


class Lane(threading.local):
    """The output file of the present thread, and the processor time of its ended processes."""

    output: Path | None = None
    processor = 0.0


lane = Lane()
_running: list[subprocess.Popen[bytes]] = []
_running_lock = threading.Lock()
ended = threading.Event()  # no other suite begins


def say(*lines: str) -> None:
    """Prints into the present lane's output."""
    text = "".join(f"{line}\n" for line in lines)
    if lane.output:
        with lane.output.open("a") as file:
            file.write(text)
    else:
        print(text, end="", flush=True)


def side_by_side(results: Path, *groups: Callable[[], None]) -> None:
    """Runs groups of a suite at once; the output of each is shown whole, in their order."""
    output, shown = lane.output, [results / f"output-{index}.log" for index in range(len(groups))]

    def work(group: Callable[[], None], log: Path) -> float:
        lane.output, lane.processor = log, 0.0
        group()
        return lane.processor

    with concurrent.futures.ThreadPoolExecutor(len(groups)) as pool:
        ended = [pool.submit(work, group, log) for group, log in zip(groups, shown, strict=True)]
    lane.output = output
    for log in shown:
        say(log.read_text(errors="replace").rstrip() if log.exists() else f"{log.name} is missing")
    for future in ended:
        lane.processor += future.result()


def start(command: list[str], log: Path | None = None, env: dict[str, str] | None = None) -> int:
    """Runs a command in the repository root, in its own process group, and returns its exit code.

    Its output goes to `log`, else to the lane's output.
    """
    executable = command[0]
    if "/" in executable and not os.access(executable, os.X_OK):
        raise Failure(f"{executable} is missing or not executable")
    output = log.open("wb") if log else lane.output.open("ab") if lane.output else None
    try:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT if output else None,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    finally:
        if output:
            output.close()
    with _running_lock:
        _running.append(process)
    try:
        _, status, used = os.wait4(process.pid, 0)
        lane.processor += used.ru_utime + used.ru_stime
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode
    finally:
        with _running_lock:
            _running.remove(process)


def must(command: list[str], log: Path | None = None, env: dict[str, str] | None = None) -> None:
    """Runs a command that has to succeed; shows the end of its log if it does not."""
    code = start(command, log, env)
    if code == 0:
        return
    shown = " ".join(Path(word).name if word.startswith(str(ROOT)) else word for word in command)
    if log:
        text = log.read_text(errors="replace")
        say(f"--- the end of {log.relative_to(ROOT)}:", *text.splitlines()[-40:])
        raise Failure(f"`{shown}` ended with {code}: {build_cause(text)}")
    raise Failure(f"`{shown}` ended with {code}")


def build_cause(text: str) -> str:
    """The first line of a build's log that is an error, else the last one."""
    for line in text.splitlines():
        if re.search(r"(error:|Error:|^E: |CMake Error|No space left|Killed)", line):
            return line.strip()[:240]
    return cause(text)


def last_line(command: list[str]) -> str:
    """The last line that a command prints, such as the path of what it made."""
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if answer.returncode != 0 or not answer.stdout.strip():
        raise Failure(
            f"`{' '.join(command)}` ended with {answer.returncode}: {answer.stderr.strip()[-500:]}"
        )
    return answer.stdout.strip().splitlines()[-1]


def end_children() -> None:
    """Stops every command that still runs.

    Each is asked to stop and has 20 s, since a cluster takes itself down first. Then it is killed.
    """
    ended.set()
    with _running_lock:
        left = list(_running)
    for process in left:
        try:
            os.killpg(process.pid, signal.SIGTERM)
        except ProcessLookupError:
            continue
    deadline = time.monotonic() + 20
    for process in left:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
