# SPDX-License-Identifier: Apache-2.0
"""Whether the operators in the places of libraries' methods gain in this training.

They compute from the first call on. After some minutes the tuner makes windows of steps with and
without them. Where steps are slower with them, the libraries compute from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from paceline._core import effects
from paceline._core.environment import has_restarted
from paceline._inject import operators
from paceline.tune import _tuner

# The least share of a GPU's memory that is left: the libraries' ways need more than the operators.
ROOM = 1 / 3


def begin() -> Callable[[], None]:
    """Returns a function that ends the trial."""
    return _tuner.try_operators(Operators())


class Operators:
    """What the tuner switches, and what it tells: all operators of this process together."""

    name = "operators"
    failed = ""
    proved = False  # by an earlier run: what was shown is not kept for operators

    def __init__(self) -> None:
        self._computed = 0

    # -- what the tuner asks for

    def observe(self) -> None:
        self._computed = _computed()

    def why_not(self) -> str:
        if not _computed():
            return "no call was computed"
        if has_restarted():
            # The libraries' own ways may be what ended the attempt before, by their memory.
            return "the job has restarted, and an attempt that trains is not put at risk"
        if torch.are_deterministic_algorithms_enabled():
            return "the program asks for deterministic algorithms, and no two trials are the same"
        return _why_no_room()

    def idle(self) -> str:
        return "" if _computed() > self._computed else "no call was computed in the last steps"

    def use(self, on: bool) -> None:
        operators.trial.idle = "" if on else "steps of the trial without it"

    def drop(self) -> None:
        """Without a verdict they are used, as before the trial."""
        self.use(True)

    def about(self) -> str:
        return ""

    # -- what the tuner tells

    def waits(self, why: str) -> None:
        operators.trial.waits = why

    def left(self, _: str, why: str) -> None:
        trial = operators.trial
        trial.told = (
            f"{trial.told}; not tried again: {why}" if trial.told else operators.no_trial(why)
        )
        effects.write()

    def judged(self, _: str, verdict: Any, __: str) -> None:
        trial, gain = operators.trial, verdict.gain
        trial.gain = None if gain is None else gain.mean
        trial.rolled_back = not verdict.kept
        trial.told = f"{'kept' if verdict.kept else 'rolled back'}: {verdict.reason}"
        if trial.rolled_back:
            trial.idle = "rolled back by the trial"
        effects.write()


def _why_no_room() -> str:
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return ""
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    left = total - torch.cuda.max_memory_reserved()
    if left >= ROOM * total:
        return ""
    return (
        f"{left / 2**30:.1f} of {total / 2**30:.1f} GiB of the GPU's memory were left, and the"
        " libraries' own ways may need more"
    )


def _computed() -> int:
    return sum(each.computed for each in operators.classes)
