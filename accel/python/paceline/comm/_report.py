# SPDX-License-Identifier: Apache-2.0
"""How each model's gradients are communicated in this process, for paceline.explain(). Holds no
model alive.
"""

from __future__ import annotations

import statistics
import weakref
from typing import Any

from paceline._core import contract, reports


class Outcome:
    """Of one model."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.communicator: weakref.ref[Any] | None = None
        self.sums: weakref.ref[Any] | None = None
        self.compression = ""
        self.why = "no hook was registered"

    def take(self, communicator: Any, sums: Any, compression: str = "") -> None:
        self.communicator = weakref.ref(communicator)
        self.sums = weakref.ref(sums)
        self.compression = compression

    def leave(self, why: str) -> None:
        self.communicator = None
        self.why = why

    def told(self) -> dict[str, Any]:
        communicator = self.communicator() if self.communicator is not None else None
        if communicator is None:
            return {
                "name": self.name,
                "state": "off",
                "reason": self.why,
                "text": f"by PyTorch ({self.why})",
            }
        try:
            plan = communicator.plan()
        except RuntimeError as error:
            plan = str(error)
        numerics = (
            f"class Lossy, compression {self.compression}"
            if self.compression
            else "class Reordered"
        )
        waits = self._waits()
        median = statistics.median(waits) if waits else None
        waited = (
            ""
            if median is None
            else (
                f"; gradients were waited for {median * 1e3:.2f} ms, the median of {len(waits)}"
                " passes"
            )
        )
        text = f"{communicator.ranks} ranks, {numerics}, {plan}{waited}"
        answer = {
            "name": self.name,
            "state": "on",
            "reason": "",
            "ranks": communicator.ranks,
            "plan": plan,
            "passes": len(waits),
            "median_wait_seconds": median,
            "text": text,
        }
        return {**answer, "compression": self.compression or "Disabled"}

    def _waits(self) -> list[float]:
        """Of the last passes. None where the device waits in the host's place."""
        sums = self.sums() if self.sums is not None else None
        return [] if sums is None or not sums.host_waits else list(sums.waits)


_outcomes: weakref.WeakKeyDictionary[Any, Outcome] = weakref.WeakKeyDictionary()
numerics = "Reordered"  # Lossy where the job asks for compression
switch = (  # of the patch of PyTorch's own DistributedDataParallel
    f"off ({contract.COMMUNICATION} is not set)"
)


def outcome_of(model: Any) -> Outcome:
    outcome = _outcomes.get(model)
    if outcome is None:
        name, inner = type(model).__qualname__, getattr(model, "module", None)
        outcome = _outcomes[model] = Outcome(
            name if inner is None else f"{name} of {type(inner).__qualname__}"
        )
    return outcome


def seen() -> list[dict[str, Any]]:
    return [outcome.told() for outcome in _outcomes.values()]


reports.register(reports.COMMUNICATION, lambda: reports.Status(switch, seen(), numerics))
