# SPDX-License-Identifier: Apache-2.0
"""Whether steps are quicker with something than without it, told from pairs of windows.

The speed of a machine drifts by tens of percent within minutes, so means of long runs say little.
Windows of a few steps with and without it alternate (A B, B A, A B, ...). Each pair gives one
number, the logarithm of the ratio of its times, and Student's t-test says what their mean is worth:
steady drift cancels, and noise widens the interval instead of moving it.

The interval is looked at four times. Each look uses one-sided 99.5 %, so that all four together are
wrong in at most 2 of 100 trials of something that changes nothing (Bonferroni).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# Pairs at each look, and the 99.5 % quantile of Student's t for one less (any table of it).
LOOKS = {6: 4.032, 10: 3.250, 16: 2.947, 24: 2.807}
LAST_LOOK = max(LOOKS)
# Longer steps than this share of a trial's steps count as long as it: evaluations, checkpoints and
# pauses of the machine fall into either window by chance. Steps of a kind that comes regularly are
# more than the rest.
LONGEST = 0.9
# The least gain that is worth a changed program.
WORTH = 0.01


@dataclass(frozen=True)
class Gain:
    """How much quicker steps are: time without, divided by time with, less 1. `low` and `high`
    bound it."""

    mean: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.mean * 100:+.1f} % ({self.low * 100:+.1f} to {self.high * 100:+.1f})"


def log_ratios(
    without: Sequence[Sequence[float]], with_it: Sequence[Sequence[float]]
) -> list[float]:
    """For each pair of windows the logarithm of the time without, divided by the time with.

    Args:
        without: seconds of the steps of each window without it.
        with_it: the same for the windows with it; as many windows.
    """
    longest = _longest([*without, *with_it])
    return [
        math.log(_mean(one, longest) / _mean(other, longest))
        for one, other in zip(without, with_it)
    ]


def extra(without: Sequence[Sequence[float]], with_it: Sequence[Sequence[float]]) -> float:
    """Seconds that the steps with it took more than those without, in all pairs of windows."""
    pairs = list(zip(without, with_it))
    longest = _longest([window for pair in pairs for window in pair])
    return sum(len(other) * (_mean(other, longest) - _mean(one, longest)) for one, other in pairs)


def _longest(windows: Sequence[Sequence[float]]) -> float:
    everything = sorted(step for window in windows for step in window)
    return everything[int(LONGEST * len(everything))] if everything else 0.0


def _mean(window: Sequence[float], longest: float) -> float:
    return max(statistics.fmean(min(step, longest) for step in window), 1e-9)


def gain_of(ratios: Sequence[float]) -> Gain:
    """The gain that these logarithms of ratios tell of. Their number is one of LOOKS."""
    mean = statistics.fmean(ratios)
    half = LOOKS[len(ratios)] * statistics.stdev(ratios) / math.sqrt(len(ratios))
    return Gain(math.expm1(mean), math.expm1(mean - half), math.expm1(mean + half), len(ratios))


def decide(gain: Gain) -> bool | None:
    """True: keep it. False: it is not worth it. None: look again after more pairs."""
    if gain.low > 0 and gain.mean >= WORTH:
        return True
    if gain.high < WORTH or gain.pairs >= LAST_LOOK:
        return False
    return None


def still_gains(gain: Gain) -> bool | None:
    """As `decide`, for something that was kept before: it is left only where it does not gain."""
    if gain.low > 0:
        return True
    if gain.high < 0 or gain.pairs >= LAST_LOOK:
        return gain.high >= 0 and gain.mean > 0
    return None
