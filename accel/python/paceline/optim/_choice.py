# SPDX-License-Identifier: Apache-2.0
"""fused=True on the CPU: PyTorch's step or ours? Both make one pass over memory. Which is quicker
depends on sizes, and on what else keeps the processors busy. So ours is tried in windows of steps,
and is kept only if steps get quicker. Both ways use the same state, so a switch changes nothing but
rounding.
"""

from __future__ import annotations

from typing import Any, Callable

from paceline._core import effects
from paceline._core.log import say

# Has the tuner try a choice. Set where the job asks for fused optimizers.
begin: Callable[[Choice], None] | None = None


class Choice:
    """What the tuner switches, and what it tells. All optimizers with fused=True share it."""

    name = "optimizer"
    failed = ""
    proved = False  # by an earlier run: what was learned is not kept for this choice

    def __init__(self) -> None:
        self.ours = False
        self.gain: float | None = None
        self._is_able = False
        self._has_begun = False
        self._said = "not tried"

    def why_torchs(self) -> str:
        return f"fused=True on the CPU; ours: {self._said}"

    @property
    def is_able(self) -> bool:
        """Whether nothing but this choice leaves a step to PyTorch."""
        return self._is_able

    def meets(self) -> None:
        """Called in a step that ours could make. Of several ranks, all come here in it."""
        self._is_able = True
        if self._has_begun or begin is None:
            return
        self._has_begun = True
        try:
            begin(self)
        except Exception as error:
            self._said = f"{type(error).__name__}: {error}"
            say(f"fused=True on the CPU stays PyTorch's: {self._said}")

    # -- what the tuner asks for

    def observe(self) -> None:
        self._is_able = False

    def why_not(self) -> str:
        return "" if self._is_able else "the program made no step that ours could make"

    def use(self, on: bool) -> None:
        self.ours = on

    def drop(self) -> None:
        self.ours = False

    def about(self) -> str:
        return ""

    # -- what the tuner tells

    def waits(self, why: str) -> None:
        self._said = why

    def left(self, _: str, why: str) -> None:
        self._is_able, self._said = True, f"not tried: {why}"
        effects.write()

    def judged(self, _: str, verdict: Any, __: str) -> None:
        """Takes a verdict of the tuner."""
        gain = verdict.gain
        self.gain = gain.mean if verdict.kept and gain is not None else None
        self._said = f"{'kept' if verdict.kept else 'rolled back'}: {verdict.reason}"
        effects.write()

    def told(self) -> str:
        """What the trial showed, where ours was kept."""
        return f"ours: {self._said}" if self.ours and self.gain is not None else ""


choice = Choice()
