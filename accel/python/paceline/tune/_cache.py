# SPDX-License-Identifier: Apache-2.0
"""Where PyTorch's compiler keeps its code, so that a restart and the next run find it."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from paceline._core import contract
from paceline._core.environment import told

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
DAYS = 30


def keep() -> bool:
    """Has PyTorch keep its code below the folder of what was learned. A folder that the user names
    stays. Returns whether it does."""
    folder = told(contract.LEARNED_DIR)
    if not folder or os.environ.get(VARIABLE):
        return False
    cache = Path(folder) / "inductor"
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    if not os.access(cache, os.W_OK):
        return False
    prune(cache, time.time())
    os.environ[VARIABLE] = str(cache)
    return True


def prune(cache: Path, now: float) -> None:
    """Removes files that were written more than DAYS ago: PyTorch itself removes none."""
    for folder, _, names in os.walk(cache):
        for name in names:
            file = Path(folder) / name
            with contextlib.suppress(OSError):
                if now - file.stat().st_mtime > DAYS * 86400:
                    file.unlink()
