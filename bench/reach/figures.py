# SPDX-License-Identifier: Apache-2.0
"""Turns paired windows into gains, and says what acted, what declined and what weights tell."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import dataclass
from typing import Any

RESAMPLES = 2000
CONFIDENCE = 0.95

# Names of features as explain() tells them, for what acts on a script as it stands.
FEATURES = (
    "loader",
    "loader workers",
    "fused optimizers",
    "communication",
    "compile",
    "mixed precision",
)

# Largest distance of weights that a class may bring in the steps of the warm-up, relative to the
# weights. Training amplifies rounding, so the distance at the end says less.
MOST_APART = {"Bitwise": 0.0, "Reordered": 1e-4, "Lossy": 3e-2}


@dataclass(frozen=True)
class Gain:
    """Seconds a step without over seconds with: above 1 is faster with."""

    median: float
    low: float
    high: float

    def told(self) -> dict[str, float]:
        return {"median": self.median, "low": self.low, "high": self.high}


def gain(without: list[float], with_it: list[float], seed: int = 1) -> Gain:
    """The median ratio of paired windows: the same steps of two runs, neighbours in time. The
    interval is of a bootstrap over the pairs.
    """
    if len(without) != len(with_it) or not without:
        raise ValueError(f"{len(without)} windows without and {len(with_it)} with make no pairs")
    ratios = [before / after for before, after in zip(without, with_it)]
    generator = random.Random(seed)
    drawn = sorted(
        statistics.median(generator.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES)
    )
    outside = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return Gain(statistics.median(ratios), drawn[outside], drawn[-1 - outside])


def acted(explained: dict[str, Any]) -> list[str]:
    """The features that have served at least one object of the program."""
    return [name for name in FEATURES if any(map(_has_worked, _seen(explained, name)))]


def _has_worked(entry: dict[str, Any]) -> bool:
    """An entry is on as soon as nothing speaks against it: it counts once it has done something."""
    return entry["state"] == "on" and entry.get("steps", 1) > 0 and entry.get("iterators", 1) > 0


def declined(explained: dict[str, Any]) -> dict[str, list[str]]:
    """Why each other feature did not act: of its objects, else of the feature as a whole."""
    found = {}
    for name in FEATURES:
        if name in acted(explained) or name not in explained:
            continue
        told = explained[name]
        whys = [entry["reason"] for entry in _seen(explained, name) if entry["reason"]]
        found[name] = list(dict.fromkeys(whys)) or [_why_nothing(name, told)]
    return found


# What a feature of a script lacks that has nothing for it.
LACKS = {
    "loader": "no loader of PyTorch",
    "fused optimizers": "no optimizer of PyTorch",
    "communication": "no DistributedDataParallel",
}


def _why_nothing(name: str, told: dict[str, Any]) -> str:
    if told["state"] == "off":
        return str(told["reason"])
    return LACKS.get(name, "nothing that it serves")


def _seen(explained: dict[str, Any], name: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = explained.get(name, {}).get("seen", [])
    return entries


def parts(explained: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each feature with a prediction: what was predicted, whether it acts, and what was measured
    of it alone, None if nothing was. Gains are shares: 0.1 is a tenth.
    """
    found = []
    acting = acted(explained)
    for name in FEATURES:
        told = explained.get(name, {}).get("predicted")
        if told:
            measured = next(filter(None, map(_measured, _seen(explained, name))), None)
            found.append({"name": name, "acted": name in acting, **told, "measured": measured})
    return found


def _measured(entry: dict[str, Any]) -> float | None:
    """By windows with and without it; else of a loader before and after it got workers."""
    if entry.get("gain") is not None:
        return float(entry["gain"])
    before, after = entry.get("step_seconds_before"), entry.get("step_seconds")
    return before / after - 1 if before and after else None


def whole(row: dict[str, Any]) -> dict[str, float] | None:
    """What is predicted of all that acts, and what was measured; None without a measurement."""
    if row["gain"] is None:
        return None
    predicted = math.prod(1 + part["gain"] for part in row["parts"] if part["acted"]) - 1
    return {"predicted": predicted, "measured": row["gain"]["median"] - 1}


def tuning(explained: dict[str, Any], seconds: float) -> dict[str, float | None]:
    """What trials cost: seconds until they had ended, seconds that they took more than training
    without them, and seconds of training after which that is earned back; None where nothing was
    kept.
    """
    seen = _seen(explained, "compile")
    cost = sum(max(0.0, entry.get("cost_seconds") or 0.0) for entry in seen)
    kept = [entry["gain"] for entry in seen if entry["state"] == "on" and entry.get("gain")]
    gained = math.prod(1 + gain for gain in kept) - 1
    return {"seconds": seconds, "cost": cost, "pays": cost / gained if gained > 0 else None}


@dataclass(frozen=True)
class Foretold:
    """How good predictions were. Errors are mean distances, in shares."""

    cases: int
    close: int  # within CLOSE of what was measured
    error: float
    error_of_0: float  # of predicting that nothing gains


CLOSE = 0.05


def foretold(rows: list[dict[str, Any]]) -> Foretold:
    """Of each part that was measured by itself, and of each whole."""
    pairs = [
        (part["gain"], part["measured"])
        for row in rows
        for part in row["parts"]
        if part["measured"] is not None
    ]
    pairs += [(row["whole"]["predicted"], row["whole"]["measured"]) for row in rows if row["whole"]]
    apart = [abs(predicted - measured) for predicted, measured in pairs]
    return Foretold(
        len(pairs),
        sum(each <= CLOSE for each in apart),
        statistics.fmean(apart) if apart else 0.0,
        statistics.fmean(abs(measured) for _, measured in pairs) if apart else 0.0,
    )


def verdict(repeated: float | None, distance: float | None, numerics: str) -> str:
    """What the distance of weights means. `repeated` is the distance of two runs without: a recipe
    that does not repeat itself cannot be compared.
    """
    if distance is None or repeated is None:
        return "not compared"
    if repeated > 0:
        return "does not repeat itself"
    if distance == 0:
        return "equal"
    return f"as {numerics}" if distance <= MOST_APART[numerics] else "differs"
