# SPDX-License-Identifier: Apache-2.0
"""Records how each model's gradients are communicated in this process, for paceline.explain().

It holds weak references only, so it keeps no model alive.
"""

from __future__ import annotations

import statistics
import weakref
from typing import Any

from paceline._core import contract, reports


class Outcome:
    """How one model's gradients are communicated. Off until `take` is called."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.communicator: weakref.ref[Any] | None = None
        self.sums: weakref.ref[Any] | None = None
        self.compression = ""
        self.why = "no hook was registered"

    # The two events: a hook was registered, or the gradients stay PyTorch's.

    def take(self, communicator: Any, sums: Any, compression: str = "") -> None:
        self.communicator = weakref.ref(communicator)
        self.sums = weakref.ref(sums)
        self.compression = compression

    def leave(self, why: str) -> None:
        self.communicator = None
        self.why = why

    def told(self) -> dict[str, Any]:
        """Returns the report of this model, as `paceline.explain()` shows it."""
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
        """Returns the seconds that each of the last passes waited for sums. Empty if the GPU waits
        and not the host.
        """
        sums = self.sums() if self.sums is not None else None
        return [] if sums is None or not sums.host_waits else list(sums.waits)


_outcomes: weakref.WeakKeyDictionary[Any, Outcome] = weakref.WeakKeyDictionary()
numerics = "Reordered"  # or Lossy, if the job asks for compression
switch = (  # whether PyTorch's own DistributedDataParallel is patched, and why not
    f"off ({contract.COMMUNICATION} is not set)"
)


def outcome_of(model: Any) -> Outcome:
    """Returns the model's record, and makes it at the first call."""
    outcome = _outcomes.get(model)
    if outcome is None:
        name, inner = type(model).__qualname__, getattr(model, "module", None)
        outcome = _outcomes[model] = Outcome(
            name if inner is None else f"{name} of {type(inner).__qualname__}"
        )
    return outcome


def seen() -> list[dict[str, Any]]:
    """Returns the reports of all models that are still alive."""
    return [outcome.told() for outcome in _outcomes.values()]


reports.register(reports.COMMUNICATION, lambda: reports.Status(switch, seen(), numerics))
