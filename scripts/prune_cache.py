#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Deletes what newer versions have replaced in Paceline's cache.

What is cached carries a version or a hash in its name, so an upgrade leaves the old one behind. The
one in use is touched; its siblings that nobody has used for some weeks go: another checkout, which
may still be at the older version, touches its own. Failure to delete one is told and changes
nothing else. usage: scripts/prune_cache.py PATH_IN_USE PATTERN (a shell pattern for the names of
its siblings)
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

DAYS_KEPT = 14


def prune(
    in_use: Path, pattern: str, days: float = DAYS_KEPT, now: float | None = None
) -> list[Path]:
    """Touches `in_use` and deletes its siblings that match and are older; answers what went. Never
    follows links.
    """
    now = time.time() if now is None else now
    gone: list[Path] = []
    if in_use.exists():
        os.utime(in_use, (now, now))
    if not in_use.parent.is_dir():
        return gone
    for path in sorted(in_use.parent.glob(pattern)):
        if path == in_use or now - path.lstat().st_mtime < days * 86400:
            continue
        try:
            # Renamed first: nobody finds half of it under its name.
            doomed = path.with_name(f".{path.name}.old")
            path.rename(doomed)
            if doomed.is_dir() and not doomed.is_symlink():
                shutil.rmtree(doomed)
            else:
                doomed.unlink()
            gone.append(path)
        except OSError as error:
            print(f"prune_cache: {path} stays: {error}", file=sys.stderr)
    return gone


def main() -> int:
    if len(sys.argv) != 3:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    for path in prune(Path(sys.argv[1]), sys.argv[2]):
        print(f"prune_cache: deleted {path.name}, unused for {DAYS_KEPT} days", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
