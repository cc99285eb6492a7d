# SPDX-License-Identifier: Apache-2.0
"""A cgroup of its own for the control plane and for each node, on cgroup v1 (also hybrid) and on
v2.

Every daemon is in its cgroup before it runs, so that killing by cgroup finds all it ever started.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def form() -> str:
    """'v2' where the unified hierarchy is mounted at the root, else 'v1'."""
    return "v2" if (ROOT / "cgroup.controllers").exists() else "v1"


def folders(name: str) -> list[Path]:
    """The cgroup called `name` in every hierarchy of this machine."""
    if form() == "v2":
        return [ROOT / name]
    return [
        folder / name
        for folder in sorted(ROOT.iterdir())
        if folder.is_dir() and not folder.is_symlink()
    ]


def _daemons(folder: Path) -> Path:
    # v2 allows processes only in leaves: the kubelet's pods are siblings of the daemons.
    return folder / "daemons" if form() == "v2" else folder


def create(name: str) -> None:
    for folder in folders(name):
        folder.mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if form() == "v1" and (folder / setting).exists():
                (folder / setting).write_text((folder.parent / setting).read_text())
        if form() == "v2":
            wanted = " ".join(
                f"+{controller}" for controller in (ROOT / "cgroup.controllers").read_text().split()
            )
            (ROOT / "cgroup.subtree_control").write_text(wanted)
            (folder / "cgroup.subtree_control").write_text(wanted)
            _daemons(folder).mkdir(exist_ok=True)


def enter(name: str) -> None:
    """Moves the calling process; for the moment between fork and exec."""
    for folder in folders(name):
        (_daemons(folder) / "cgroup.procs").write_text(str(os.getpid()))


def members(name: str) -> set[int]:
    found: set[int] = set()
    for folder in folders(name):
        for listing in folder.rglob("cgroup.procs"):
            try:
                found.update(int(pid) for pid in listing.read_text().split())
            except OSError:
                continue  # the cgroup ended while we looked
    return found


def kill(name: str, patience_s: float = 20.0) -> None:
    """SIGKILLs all members, in sweeps, until none is left; then removes the cgroups, deepest first."""
    until = time.monotonic() + patience_s
    while pids := members(name):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if time.monotonic() > until:
            raise TimeoutError(f"processes of cgroup {name} do not end: {sorted(pids)}")
        time.sleep(0.05)
    for folder in folders(name):
        if not folder.is_dir():
            continue
        inner = sorted(
            (path for path in folder.rglob("*") if path.is_dir()),
            key=lambda p: len(p.parts),
            reverse=True,
        )
        for path in [*inner, folder]:
            path.rmdir()
