# SPDX-License-Identifier: Apache-2.0
"""What trials have shown, in a folder that outlives a run: one small JSON file for each training,
by its signature (`_signature`).

A file of another program, a broken one or one that cannot be read counts as none. Files are
replaced whole, so that a reader sees the one before or the new one. What is older than DAYS is
tried anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline._core.log import say_once
from paceline.tune._trial import Verdict

DAYS = 30
MOST_FILES = 256
MOST_BYTES = 16384  # of one file
MOST_REASON = 512  # characters
_DAY = 86400.0
_VERSION = 1


class Learned:
    """The files of one folder. Nothing here raises."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = folder, clock

    def has_any(self) -> bool:
        try:
            return next(self._folder.glob("*.json"), None) is not None
        except OSError:
            return False

    def find(self, signature: dict[str, Any], change: str) -> dict[str, Any] | None:
        """What is known of a change; None if nothing, or if it is too old."""
        entry = self._changes(signature).get(change)
        return entry if entry and _is_whole(entry) and self._is_fresh(entry["at"]) else None

    def keep(self, signature: dict[str, Any], change: str, entry: dict[str, Any]) -> None:
        """Keeps what is known of a change, beside what is known of others."""
        changes = {**self._changes(signature), change: {**entry, "at": self._clock()}}
        document = {"version": _VERSION, "signature": signature, "changes": changes}
        file = self._file(signature)
        beside = file.with_suffix(f".{os.getpid()}")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            beside.replace(file)
            self._bound(file)
        except (OSError, ValueError, TypeError) as error:
            with contextlib.suppress(OSError):
                beside.unlink()
            say_once(f"what was learned is not kept: {type(error).__name__}: {error}")

    def _file(self, signature: dict[str, Any]) -> Path:
        text = json.dumps(signature, sort_keys=True)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"

    def _changes(self, signature: dict[str, Any]) -> dict[str, Any]:
        try:
            with self._file(signature).open("rb") as file:
                raw = file.read(MOST_BYTES + 1)
            document = json.loads(raw) if len(raw) <= MOST_BYTES else {}
            if document["version"] == _VERSION and document["signature"] == signature:
                return dict(document["changes"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            pass
        return {}

    def _is_fresh(self, at: float) -> bool:
        # Clocks of two nodes may differ a little.
        return -_DAY <= self._clock() - at <= DAYS * _DAY

    def _bound(self, newest: Path) -> None:
        """Removes the oldest files where there are too many."""
        ages = [(_age(file), file) for file in self._folder.glob("*.json") if file != newest]
        for _, file in sorted(ages)[: max(0, len(ages) + 1 - MOST_FILES)]:
            with contextlib.suppress(OSError):
                file.unlink()


def _age(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _is_whole(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    gain, reason = entry.get("gain"), entry.get("reason")
    return (
        isinstance(entry.get("kept"), bool)
        and isinstance(entry.get("checked"), bool)
        and isinstance(entry.get("at"), (int, float))
        and isinstance(reason, str)
        and len(reason) <= MOST_REASON
        and (gain is None or (isinstance(gain, dict) and isinstance(gain.get("mean"), float)))
    )


def entry_of(verdict: Verdict) -> dict[str, Any]:
    """A verdict as it is kept. `checked`: no start has used it since it was shown."""
    gain = verdict.gain
    return {
        "kept": verdict.kept,
        "reason": verdict.reason[:MOST_REASON],
        "gain": None if gain is None else dict(vars(gain)),
        "cost": verdict.cost,
        "checked": True,
    }


def told(entry: dict[str, Any]) -> str:
    """An entry in words, for explain()."""
    day = time.strftime("%Y-%m-%d", time.gmtime(entry["at"]))
    word = "kept" if entry["kept"] else "rolled back"
    return f"{word} in an earlier run ({day}): {entry['reason']}"
