# SPDX-License-Identifier: Apache-2.0
"""What the container gives to this process: processors and memory.

Files are read below a root that is passed in. A file that is missing or cannot be read sets no
limit.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_NO_LIMIT = 1 << 60  # cgroup v1 writes a number above this for no limit of memory


class Machine(NamedTuple):
    """The share of one rank."""

    processors: float
    memory: int  # bytes that are free
    process: int  # bytes that belong to this process alone


def seen(root: Path = Path("/")) -> Machine:
    """Reads the processors and the free memory of this container, divided by the local ranks."""
    ranks = max(1, _whole(os.environ.get("LOCAL_WORLD_SIZE", "")) or 1)
    processors = min([float(_allowed()), *_quotas(root)])
    memory = min([_fields(root / "proc/meminfo").get("MemAvailable", 0), *_left(root)])
    status = _fields(root / "proc/self/status")
    return Machine(processors / ranks, memory // ranks, status.get("RssAnon", 0))


def _allowed() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def _whole(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isdecimal() else None


def _read(path: Path) -> str:
    with contextlib.suppress(OSError, ValueError):
        return path.read_text(encoding="ascii")
    return ""


def _fields(path: Path) -> dict[str, int]:
    """Returns the fields of a file of /proc that are given in kB, in bytes."""
    found = {}
    for line in _read(path).splitlines():
        words = line.split()
        if len(words) == 3 and words[2] == "kB" and words[1].isdecimal():
            found[words[0].rstrip(":")] = int(words[1]) << 10
    return found


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yields the folders of this process's control group and of those above it, whose limits hold,
    too. In a container the group is usually mounted as the root of the file system.
    """
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        for top in [f"sys/fs/cgroup/{controller}"] if controllers else ["sys/fs/cgroup"]:
            folder = Path(path.lstrip("/"))
            yield from (root / top / each for each in (folder, *folder.parents))


def _quotas(root: Path) -> Iterator[float]:
    """Yields the limits of processor time, as a number of processors."""
    for folder in _groups(root, "cpu"):
        words = _read(folder / "cpu.max").split()
        if not words:
            words = [_read(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        if len(words) == 2 and words[0].isdecimal() and words[1].isdecimal() and int(words[1]):
            yield int(words[0]) / int(words[1])


def _left(root: Path) -> Iterator[int]:
    """Yields what the limits of memory leave free. The kernel drops files in its cache first, so
    they count as free."""
    for folder in _groups(root, "memory"):
        for limit, used in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            most, now = _whole(_read(folder / limit)), _whole(_read(folder / used))
            if most is None or now is None or most > _NO_LIMIT:
                continue
            cached = 0
            for line in _read(folder / "memory.stat").splitlines():
                if line.startswith(("inactive_file ", "total_inactive_file ")):
                    cached = max(cached, int(line.split()[1]))
            yield max(0, most - now + cached)


def delayed() -> float:
    """Returns the seconds that this thread has been ready to run without a processor, 0 if the
    kernel does not say."""
    words = _read(Path("/proc/thread-self/schedstat")).split()
    return int(words[1]) / 1e9 if len(words) == 3 else 0.0


def used(pids: Iterable[int], proc: Path = Path("/proc")) -> float:
    """Returns the seconds that these processes have run, or were ready to run."""
    nanoseconds = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
            words = (proc / f"{pid}" / "schedstat").read_text(encoding="ascii").split()
            nanoseconds += int(words[0]) + int(words[1])
    return nanoseconds / 1e9
