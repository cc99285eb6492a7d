# SPDX-License-Identifier: Apache-2.0
"""What became of each optimizer's parameters in this process, for paceline.explain(). Holds no optimizer alive."""

from __future__ import annotations

import weakref
from typing import Any


class Outcome:
    """Of one optimizer's last step."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fused = 0
        self.where = "the CPU"
        self.device = ""  # why a GPU's parameters are not the library's
        self.elsewhere: dict[str, int] = {}


_outcomes: weakref.WeakKeyDictionary[Any, Outcome] = weakref.WeakKeyDictionary()
switch = "off (PACELINE_OPTIMIZER is not set)"  # of the patch of PyTorch's own optimizers


def outcome_of(optimizer: Any) -> Outcome:
    outcome = _outcomes.get(optimizer)
    if outcome is None:
        kind = type(optimizer)
        outcome = _outcomes[optimizer] = Outcome(f"{kind.__module__.split('._')[0]}.{kind.__qualname__}")
    return outcome


def lines() -> list[str]:
    said = []
    for outcome in _outcomes.values():
        parts = [f"{outcome.fused} tensors fused on {outcome.where}, class Reordered"] if outcome.fused else []
        parts += [f"{count} by PyTorch ({why})" for why, count in sorted(outcome.elsewhere.items())]
        if outcome.device and outcome.elsewhere:
            parts.append(outcome.device)
        said.append(f"  {outcome.name}: {'; '.join(parts) or 'no step yet'}")
    return said
