# SPDX-License-Identifier: Apache-2.0
"""What was tried, what it gained and what was left, for paceline.explain()."""

from __future__ import annotations

from typing import Any

from paceline._core import effects, reports
from paceline.tune._trial import Verdict

switch = reports.COMPILE.switch
_stage = "not tried yet"
_seen: list[dict[str, Any]] = []


def waits(why: str) -> None:
    """Says what the trial waits for, until there is a verdict."""
    global _stage
    _stage = why


def left(name: str, why: str) -> None:
    """It was not tried, or could not be."""
    _tell(name, "off", f"left as it is: {why}", None, 0.0)


def began_with(name: str, text: str, gain: float | None) -> None:
    """It is used from the start, since an earlier run has kept it."""
    _tell(name, "on", text, gain, 0.0)


def judged(name: str, verdict: Verdict, about: str) -> None:
    gain = None if verdict.gain is None else verdict.gain.mean
    word = "kept" if verdict.kept else "rolled back"
    text = f"{word}: {verdict.reason}; trying it cost {max(verdict.cost, 0.0):.1f} s"
    _tell(
        name,
        "on" if verdict.kept else "off",
        text + (f"; {about}" if about else ""),
        gain,
        verdict.cost,
    )


def _tell(name: str, state: str, text: str, gain: float | None, cost: float) -> None:
    told = {
        "name": name,
        "state": state,
        "reason": text,
        "gain": gain,
        "cost_seconds": cost,
        "text": text,
    }
    _seen[:] = [entry for entry in _seen if entry["name"] != name] + [told]
    effects.write()


def forget() -> None:
    global _stage, switch
    _stage, switch = "not tried yet", reports.COMPILE.switch
    _seen.clear()


def install() -> None:
    """Has explain() ask here. Trials of other features import this file, too."""
    reports.register(reports.COMPILE, _status)


def _status() -> reports.Status:
    waiting = [{"name": "model", "state": "waiting", "reason": _stage, "text": _stage}]
    return reports.Status(switch, _seen or (waiting if switch.startswith("on") else []))
