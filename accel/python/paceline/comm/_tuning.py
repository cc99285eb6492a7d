# SPDX-License-Identifier: Apache-2.0
"""Chooses the algorithm of all-reduces by measurement, once for each fabric. _ddp and _patch use
it. The result is kept in this process, and in a file on the first rank's machine."""

from __future__ import annotations

import contextlib
import os
import socket
from datetime import timedelta
from pathlib import Path

from paceline._core import contract
from paceline._core.environment import told
from paceline.comm._communicator import Communicator

BUDGET = timedelta(milliseconds=500)

_known: dict[str, str] = {}


def tune(communicator: Communicator) -> str:
    """Tunes a communicator, and returns the choice. All ranks call it. If the first rank has a
    result, all ranks use it.
    """
    shape = communicator.shape() + ("-rdma" if " by RDMA " in communicator.plan() else "")
    known = ""
    if communicator.rank == 0:
        known = _known.get(shape) or _read(_file(shape))
    choice = communicator.tune(known, BUDGET)
    if communicator.rank == 0 and choice != known:
        _write(_file(shape), choice)
    _known[shape] = choice
    return choice


def _file(shape: str) -> Path:
    """Returns the file for this number of ranks on each host and this transport. Another node or
    another number of processors counts as another fabric.
    """
    node = told(contract.NODE_NAME) or socket.gethostname()
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    except RuntimeError:  # a user without a home
        folder = Path(os.devnull)
    way = shape.lstrip("0123456789,")
    hosts = shape[: len(shape) - len(way)]
    if len(hosts) >= 100:  # a file's name has 255
        hosts = f"{hosts.count(',') + 1}"
    name = f"{node}-{os.cpu_count()}-{hosts}{way}"
    return folder / "paceline" / "comm" / f"{name.replace('/', '_')}.choice"


def _read(file: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return file.read_text().strip()
    return ""


def _write(file: Path, choice: str) -> None:
    """Replaces the file atomically, since other jobs may read it at the same time."""
    part = file.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):  # without a home or free space, the next job measures again
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_text(choice + "\n")
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
