# SPDX-License-Identifier: Apache-2.0
"""Lines on stderr. Each says what is off and why."""

from __future__ import annotations

import sys

_said: set[str] = set()


def say(text: str) -> None:
    """Writes one line."""
    try:
        sys.stderr.write(f"paceline: {text}\n")
    except Exception:  # stderr is closed
        pass


def say_once(text: str) -> None:
    """Writes a line that this process has not written before."""
    if text not in _said:
        _said.add(text)
        say(text)
