# SPDX-License-Identifier: Apache-2.0
"""Who updates each optimizer's parameters in this process, for paceline.explain(). It keeps no
optimizer alive, and also tells of optimizers that are gone.
"""

from __future__ import annotations

import collections
import statistics
import weakref
from typing import Any

from paceline._core import contract, reports
from paceline.optim._choice import choice

TIMES = 1024  # steps whose times are kept for each optimizer


class Outcome:
    """What one optimizer's last step did, and how long its steps took."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fused = 0
        self.where = "the CPU"
        self.device = ""  # why the library does not update on the GPU
        self.elsewhere: dict[str, int] = {}  # tensors that PyTorch updates, by the reason
        self.never = ""  # why the library makes none of its steps
        self.is_chosen = False  # where the tuner has a choice (_choice.py)
        self.steps = 0  # steps in which the library updated at least one tensor
        self._times: collections.deque[float] = collections.deque(maxlen=TIMES)

    def stepped(self, seconds: float) -> None:
        """Notes the time of a step: on the CPU that of the update, on a GPU that of the host."""
        if self.fused:
            self.steps += 1
            self._times.append(seconds)

    def _measured(self) -> str:
        host = " of the host" if self.where == "the GPU" else ""
        return (
            f"{self.steps} steps by the library, median {statistics.median(self._times) * 1e3:.3f}"
            f" ms{host}"
        )

    def told(self) -> dict[str, Any]:
        parts = (
            [f"{self.fused} tensors fused on {self.where}, class Reordered"] if self.fused else []
        )
        parts += [f"{count} by PyTorch ({why})" for why, count in sorted(self.elsewhere.items())]
        if self.device and self.elsewhere:
            parts.append(self.device)
        if self.steps:
            parts.append(self._measured())
        chosen = choice.told() if self.fused and self.is_chosen else ""
        if chosen:
            parts.append(chosen)
        if self.never:
            parts = [f"PyTorch's own ({self.never})"]
        reasons = [self.never] if self.never else sorted(self.elsewhere)
        return {
            "name": self.name,
            "state": "on" if self.fused else "off",
            "reason": "; ".join(reasons) if reasons or self.fused else "no step yet",
            "fused_tensors": self.fused,
            "other_tensors": sum(self.elsewhere.values()),
            "steps": self.steps,
            "gain": choice.gain if chosen else None,
            "median_step_seconds": statistics.median(self._times) if self._times else None,
            "text": "; ".join(parts) or "no step yet",
        }


LIMIT = 64  # optimizers that explain() tells of; a program may make any number
_outcomes: weakref.WeakKeyDictionary[Any, Outcome] = weakref.WeakKeyDictionary()
_all: collections.deque[Outcome] = collections.deque(maxlen=LIMIT)
switch = f"off ({contract.OPTIMIZER} is not set)"  # of the patch of PyTorch's own optimizers


def outcome_of(optimizer: Any) -> Outcome:
    outcome = _outcomes.get(optimizer)
    if outcome is None:
        kind = type(optimizer)
        outcome = _outcomes[optimizer] = Outcome(
            f"{kind.__module__.split('._')[0]}.{kind.__qualname__}"
        )
        _all.append(outcome)
    return outcome


def seen() -> list[dict[str, Any]]:
    return [outcome.told() for outcome in _all]


def lines() -> list[str]:
    return [f"  {told['name']}: {told['text']}" for told in seen()]


reports.register(reports.OPTIMIZERS, lambda: reports.Status(switch, seen()))
