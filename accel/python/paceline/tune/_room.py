# SPDX-License-Identifier: Apache-2.0
"""Whether this process may try something that needs memory, also after a restart."""

from __future__ import annotations

import os
from pathlib import Path

from paceline._core.environment import attempt

# Bytes for each rank. A compiler and its helpers took 0.6 to 1.4 GB on the CPU (PyTorch 2.14).
NEEDED = 3 << 30
_CGROUP = Path("/sys/fs/cgroup")


def memory_left(cgroup: Path = _CGROUP, meminfo: Path = Path("/proc/meminfo")) -> int:
    """Bytes that this container may still take: the less of its limit's rest and the machine's.

    Pages of files count as free, since the kernel gives them back.
    """
    left = [_kib(meminfo.read_text(), "MemAvailable:")]
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        if limit != "max":
            used = int((cgroup / "memory.current").read_text())
            statistics = dict(
                line.split() for line in (cgroup / "memory.stat").read_text().splitlines()
            )
            files = int(statistics["inactive_file"]) + int(statistics["active_file"])
            left.append(int(limit) - used + files)
    except OSError:  # cgroup v1, or none: the machine's memory is all that is known
        pass
    return min(left)


def _kib(meminfo: str, name: str) -> int:
    line = next(line for line in meminfo.splitlines() if line.startswith(name))
    return int(line.split()[1]) << 10


def why_not() -> str:
    """Why nothing that needs memory is tried; empty if it may be."""
    if attempt() != "0":
        # The trial itself may have been what ended the attempt before, by its memory.
        return "the job has restarted, and an attempt that trains is not put at risk"
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    needed = NEEDED * max(int(ranks) if ranks.isdigit() else 1, 1)
    left = memory_left()
    if left < needed:
        return f"{left / 2**30:.1f} GiB of memory are left; a trial wants {needed / 2**30:.0f}"
    return ""
