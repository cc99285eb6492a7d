# SPDX-License-Identifier: Apache-2.0
"""Runs programs whose launchers have agreed on a step to save at. The tests play the launcher: the
request is there before the program starts.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "accel" / "python"
DRAIN, WARNING = 1, 2  # why the launchers ask


def run_asked(folder: Path, program: str, *arguments: str, step: int, why: int) -> str:
    """Its output. The package is that of the source tree, with the entry points that the built one
    has."""
    (folder / "train.py").write_text(program)
    information = folder / "package" / "paceline-0.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: paceline\nVersion: 0\n")
    (information / "entry_points.txt").write_text((PYTHON / "entry_points.txt").read_text())
    request = folder / "saves" / "request"
    request.parent.mkdir(exist_ok=True)
    request.write_bytes(struct.pack("=QQQ", 1, step, why).ljust(64, b"\0"))
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "PACELINE_SAVE_REQUEST": str(request),
        "PYTHONPATH": f"{PYTHON / 'site'}:{PYTHON}:{information.parent}",
    }
    done = subprocess.run(
        [sys.executable, "train.py", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def told(folder: Path) -> list[tuple[int, ...]]:
    """What each process has told its launcher: its step, that of the save + 1, whether it saved."""
    files = [file for file in (folder / "saves").iterdir() if file.name != "request"]
    return [struct.unpack("=QQQ", file.read_bytes()) for file in files]
