# SPDX-License-Identifier: Apache-2.0
"""The built programs, and what some faults need of the machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from launch.conftest import build

__all__ = ["build"]

MEBIBYTE = 1 << 20


@pytest.fixture
def busy_processor() -> Iterator[Callable[[int], None]]:
    """Other programs that want one processor all the time, three of them. They have the priority of
    the ranks, which other programs of the machine do not have.
    """
    hogs: list[subprocess.Popen[bytes]] = []

    def begin(processor: int) -> None:
        program = (
            "import contextlib, os\n"
            f"os.sched_setaffinity(0, {{{processor}}})\n"
            "with contextlib.suppress(PermissionError): os.setpriority(os.PRIO_PROCESS, 0, -20)\n"
            "while True: pass"
        )
        hogs.extend(subprocess.Popen([sys.executable, "-S", "-c", program]) for _ in range(3))

    yield begin
    for hog in hogs:
        hog.kill()
        hog.wait()


@pytest.fixture
def memory_limit() -> Iterator[Path]:
    """A memory cgroup of 1.5 GiB; whoever writes its number into cgroup.procs is in it."""
    root = Path("/sys/fs/cgroup")
    v1 = (root / "memory").is_dir()
    group = (root / "memory" if v1 else root) / f"paceline-{os.getpid()}"
    try:
        group.mkdir()
        limit = group / ("memory.limit_in_bytes" if v1 else "memory.max")
        limit.write_text(str(1536 * MEBIBYTE))
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made: {error}")
    yield group
    for _ in range(100):  # the kernel removes the ended processes soon
        with contextlib.suppress(OSError):
            group.rmdir()
        if not group.exists():
            return
        time.sleep(0.05)


@pytest.fixture
def slow_loopback(tmp_path: Path) -> tuple[str, ...]:
    """A command before the job's: a network of its own, whose only device is slow."""
    if os.geteuid() != 0:
        pytest.skip("a network namespace needs root")
    script = tmp_path / "slow-loopback"
    script.write_text(
        "set -e\nip link set lo up mtu 1500\n"
        "tc qdisc add dev lo root tbf rate 200mbit burst 64kb latency 1s\n"
        'exec "$@"\n'
    )
    return ("unshare", "-n", "sh", str(script))
