# SPDX-License-Identifier: Apache-2.0
"""A trial: windows of steps with and without something, until it is kept or left.

A trial knows steps and their seconds alone, so that it is tested without a clock and without
PyTorch. It may end at any step; the caller then switches it for good.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.tune import _pairs
from paceline.tune._pairs import Gain

WINDOW_SECONDS = 0.5  # of a window, at least
WINDOW_STEPS = (4, 64)
SETTLING = 1  # steps after a switch that are not counted
FIRST_STEPS = 6  # first steps with it, in which it is compiled or learns shapes


Agreed = Callable[[Sequence[float], str], "tuple[Sequence[float], str]"]


@dataclass(frozen=True)
class Verdict:
    """How a trial ended. `cost`: seconds that its steps took more than those before it."""

    kept: bool
    reason: str
    gain: Gain | None
    cost: float


class Trial:
    """A trial of one change. `step` is called with every step.

    Args:
        usual: seconds of a step without it, as measured before the trial.
        first_budget: seconds that the first steps may cost.
        budget: seconds that the windows may cost. Each look asks for it.
        again: True for something that is used already, and is looked at again.
        agreed: makes of this rank's logarithms of ratios, and of why this rank leaves the trial,
            those of all ranks. It is called at each look. All ranks are given the same `usual`.
    """

    def __init__(
        self,
        usual: float,
        *,
        first_budget: float = math.inf,
        budget: float = math.inf,
        again: bool = False,
        agreed: Agreed = lambda ratios, why: (ratios, why),
    ) -> None:
        self._usual = usual
        self._first_budget, self._budget = first_budget, budget
        self._again = again
        self._agreed = agreed
        least, most = WINDOW_STEPS
        steps = math.ceil(WINDOW_SECONDS / max(usual, 1e-6) / least) * least
        self._steps = min(max(steps, least), most)
        self._windows: tuple[list[list[float]], list[list[float]]] = ([], [])
        self._window: list[float] = []
        self._skip = 0 if again else FIRST_STEPS
        self._first = not again
        self._order = 0  # windows that have begun
        self.with_it = True  # how the next step is to be made
        self._first_cost = 0.0
        if again:
            self._begin()

    def _begin(self) -> None:
        """Begins a window. The order is A B B A: one switch fewer, and drift cancels."""
        wanted = self._order % 4 in (1, 2)
        self._skip = SETTLING if wanted != self.with_it else 0
        self.with_it = wanted
        self._order += 1
        self._window = []

    def step(self, seconds: float) -> Verdict | None:
        """Takes the time of the step that has just ended, made as `with_it` said. Returns the
        verdict when there is one.
        """
        if self._first:
            return self._first_step(seconds)
        if self._skip > 0:
            self._skip -= 1
            return None
        self._window.append(seconds)
        if len(self._window) < self._steps:
            return None
        self._windows[self.with_it].append(self._window)
        verdict = self._look()
        if verdict is None:
            self._begin()
        return verdict

    def _first_step(self, seconds: float) -> Verdict | None:
        self._skip -= 1
        self._first_cost += seconds - self._usual
        if self._first_cost > self._first_budget:
            return self.fail(f"its first steps cost {self._first_cost:.0f} s")
        if self._skip == 0:
            self._first = False
            self._begin()
        return None

    def fail(self, why: str) -> Verdict:
        """Ends the trial, since the change has failed on this rank."""
        return self._left(self._agreed((), why)[1])

    def _look(self) -> Verdict | None:
        without, with_it = self._windows
        if len(without) != len(with_it) or len(with_it) not in _pairs.LOOKS:
            return None
        own = [*_pairs.log_ratios(without, with_it), _pairs.extra(without, with_it)]
        agreed, why = self._agreed(own, "")
        if why:
            return self._left(why)
        gain, extra = _pairs.gain_of(agreed[:-1]), agreed[-1]
        told = f"{gain} in {gain.pairs} pairs of windows"
        if self._again:
            kept = _pairs.still_gains(gain)
            # The windows of the slower way are what it costs to look again at what is used.
            if kept is None and abs(extra) > self._budget:
                kept, told = gain.mean > 0, f"{told}, which cost {abs(extra):.0f} s"
        elif extra > self._budget:
            return self._left(f"trying it cost {extra:.0f} s")
        else:
            kept = _pairs.decide(gain)
        return None if kept is None else Verdict(kept, told, gain, self._cost())

    def _left(self, reason: str) -> Verdict:
        return Verdict(False, reason, None, self._cost())

    def _cost(self) -> float:
        extra = _pairs.extra(*self._windows)
        return self._first_cost + (-extra if self._again else extra)
