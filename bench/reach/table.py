# SPDX-License-Identifier: Apache-2.0
"""Writes what was recorded as the page docs/reach.md and as one line of JSON."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable
from typing import Any

import figures
from catalogue import HELPED

LEAST_ACTED = 14 / 16
LEAST_MEDIAN = 1.10
LEAST_GAIN = 0.99
LEAST_CLOSE = 0.75  # share of the predictions that are close

SHORT = {
    "loader": "loader",
    "loader workers": "workers",
    "fused optimizers": "optimizer",
    "communication": "communication",
    "compile": "compile",
    "mixed precision": "precision",
}


def line(record: dict[str, Any]) -> dict[str, Any]:
    """The last line that the bench prints. `median` is of the first three kinds."""
    rows = record["rows"]
    gains = _medians(rows)
    helped = _medians(row for row in rows if row["bound"] in HELPED)
    foretold = figures.foretold(rows)
    return {
        "bench": "reach",
        "of": len(rows),
        "acted": sum(bool(row["acted"]) for row in rows),
        "measured": len(gains),
        "median": _rounded(statistics.median(helped)) if helped else None,
        "median_all": _rounded(statistics.median(gains)) if gains else None,
        "worst": _rounded(min(gains)) if gains else None,
        "predictions": foretold.cases,
        "close": foretold.close,
        "error": _rounded(foretold.error),
        "error_of_0": _rounded(foretold.error_of_0),
        "rows": [
            {
                "name": row["name"],
                "acted": [SHORT[name] for name in row["acted"]],
                **{key: _median(row[key]) for key in ("gain", "control", "lossy")},
                "parts": {
                    SHORT[part["name"]]: [_rounded(part["gain"]), part["measured"]]
                    for part in row["parts"]
                },
                "weights": row["weights"]["verdict"],
            }
            for row in rows
        ],
    }


FEATURES_TOLD = ("loader", "loader workers", "fused optimizers", "communication")


def _median(told: dict[str, float] | None) -> float | None:
    return None if told is None else _rounded(told["median"])


def _medians(rows: Iterable[dict[str, Any]]) -> list[float]:
    """The gains of rows that have one: of the others only what acts was looked at."""
    return [row["gain"]["median"] for row in rows if row["gain"] is not None]


def _load(rows: list[dict[str, Any]]) -> str:
    loads = [row["load"] for row in rows]
    return f"{min(loads):.0f} to {max(loads):.0f}"


def page(record: dict[str, Any]) -> str:
    """docs/reach.md."""
    rows = record["rows"]
    return "\n".join(
        [
            *_beginning(record),
            "## Results",
            "",
            "| recipe | bound by | ranks | batch | acted | gain | control | Lossy, O1 |",
            "|---|---|---|---|---|---|---|---|",
            *(_row(row) for row in rows),
            "",
            *_summary(record),
            "",
            "## Predicted and measured",
            "",
            "What was predicted of each part before it was tried, and measured of it alone.",
            "The tuner measures it, or a loader before and after it got workers.",
            "The whole is what is predicted of all that acts, and the gain above.",
            "In brackets: the range of the prediction.",
            "",
            "| recipe | part | acts | share of a step | predicted | measured |",
            "|---|---|---|---|---|---|",
            *(text for row in rows for text in _parts(row)),
            "",
            "## Trials",
            "",
            "Trials go on until something is kept, or nothing.",
            "Cost: seconds that their steps took more than steps without.",
            "It is earned back after so many seconds of training.",
            "",
            "| recipe | trials took | cost | earned back after |",
            "|---|---|---|---|",
            *(_trial(row) for row in rows),
            "",
            "## What declined, and why",
            "",
            "| recipe | feature | reason |",
            "|---|---|---|",
            *(text for row in rows for text in _reasons(row)),
            "",
            "## Weights",
            "",
            "A distance is the norm of the difference to a run without, over the weights' norm.",
            f"It is taken after {record['warm_up']} steps, before anything is tried:"
            " training amplifies rounding.",
            "",
            "| recipe | `acceleration: {}` | distance | Lossy, O1 | distance |",
            "|---|---|---|---|---|",
            *(_weights(row) for row in rows),
            "",
        ]
    )


def _beginning(record: dict[str, Any]) -> list[str]:
    return [
        "# Reach",
        "",
        "On which trainers does acceleration act as they are, and what does it gain?",
        "",
        "```sh",
        "make reach",
        "```",
        "",
        "This trains the scripts of `bench/reach/recipes` and writes this page.",
        "They use PyPI packages in their default configuration, and none mentions Paceline.",
        "Models and data are small, and are made on the spot.",
        "`bench/reach/catalogue.py` said what bounds each recipe before the first measurement.",
        "",
        f"Recorded on {record['date']}: PyTorch {record['torch']}, {record['device']},"
        f" {record['processors']} processors, load {_load(record['rows'])}.",
        "",
        "- Gain: seconds a step without Paceline over seconds with `acceleration: {}`."
        " Above 1 is faster.",
        "- Control: the same ratio of two runs without. It shows what the machine's noise makes"
        " of 1.",
        "- Lossy, O1: the same ratio with `acceleration: {numerics: Lossy, precision: O1}`.",
        "- The runs of a recipe take turns: one goes on for a window of steps, the others stand"
        " still. So a pair of windows is made at nearly the same time.",
        f"- The first {record['warm_up']} steps of a run are left out, and with"
        " `acceleration: {}` all steps until nothing is tried any more."
        f" A gain is the median ratio of {_pairs(record['rows'])} pairs.",
        "- Not measured: one short run has shown what acts, and no more.",
        "- In brackets: the interval of 95 % of a bootstrap over the pairs.",
        "- Without: the same launcher with `PACELINE_DISABLE=1`.",
        "- With `acceleration: {}` a model is compiled on trial at once, not after five minutes."
        " With Lossy, O1 it is not.",
        "- All runs have `OMP_WAIT_POLICY=passive`, since the processors are shared.",
        "",
        "What acts on other releases of PyTorch: [reach-versions.md](reach-versions.md).",
        "",
    ]


def _row(row: dict[str, Any]) -> str:
    names = ", ".join(SHORT[name] for name in row["acted"]) or "-"
    figures = " | ".join(gain(row[key]) for key in ("gain", "control", "lossy"))
    title = f"{row['package']} (`{row['name']}`)"
    return f"| {title} | {row['bound']} | {row['ranks']} | {row['batch']} | {names} | {figures} |"


def _pairs(rows: list[dict[str, Any]]) -> str:
    """How many pairs of windows the gains are of."""
    counts = {len(row["seconds"]["with"]) for row in rows if row["gain"] is not None}
    return f"{min(counts)} to {max(counts)}" if len(counts) > 1 else f"{max(counts, default=0)}"


def gain(told: dict[str, float] | None) -> str:
    if told is None:
        return "not measured"
    return f"{told['median']:.3f} ({told['low']:.2f} to {told['high']:.2f})"


def _summary(record: dict[str, Any]) -> list[str]:
    told = line(record)
    rows = record["rows"]
    whole = told["measured"] == told["of"]
    least = math.ceil(LEAST_ACTED * told["of"])
    below = [row["name"] for row in told["rows"] if (row["gain"] or 1) < LEAST_GAIN]
    return [
        "| figure | measured | bar | |",
        "|---|---|---|---|",
        _judged("recipes in which something acts", f"{told['acted']} of {told['of']}", f"{least}")
        + _met(told["acted"] >= least),
        _judged("median gain of the first three kinds", f"{told['median']}", f"{LEAST_MEDIAN:.2f}")
        + _met((told["median"] or 0) >= LEAST_MEDIAN, whole),
        _judged("median gain of all", f"{told['median_all']}", "-") + " |",
        _judged("recipes with a measured gain", f"{told['measured']} of {told['of']}", "all")
        + _met(whole),
        _judged("smallest gain", f"{told['worst']}", f"{LEAST_GAIN}") + _met(not below, whole),
        _judged("gains whose interval lies above 1", _count(rows, "gain", 1), "-") + " |",
        _judged("gains whose interval lies below 1", _count(rows, "gain", -1), "-") + " |",
        _judged("controls whose interval leaves out 1", _count(rows, "control", 0), "0") + " |",
        *_foretold(figures.foretold(rows)),
    ]


def _foretold(told: figures.Foretold) -> list[str]:
    if not told.cases:
        return []
    close, least = f"{told.close} of {told.cases}", math.ceil(LEAST_CLOSE * told.cases)
    error, of_0 = (f"{each * 100:.1f} %" for each in (told.error, told.error_of_0))
    return [
        _judged(f"predictions within ± {figures.CLOSE * 100:.0f} points", close, f"{least}")
        + _met(told.close >= least),
        _judged("mean error of the predictions", error, f"below {of_0}")
        + _met(told.error < told.error_of_0),
        _judged("mean error of predicting 0", of_0, "-") + " |",
    ]


def _count(rows: list[dict[str, Any]], key: str, side: int) -> str:
    """How many intervals lie above 1 (side 1), below (-1), or either (0)."""
    told = [row[key] for row in rows if row[key] is not None]
    above = sum(one["low"] > 1 for one in told)
    below = sum(one["high"] < 1 for one in told)
    return f"{above if side > 0 else below if side < 0 else above + below} of {len(told)}"


def _judged(figure: str, measured: str, bar: str) -> str:
    return f"| {figure} | {measured} | {bar} |"


def _met(met: bool, decided: bool = True) -> str:
    return (" met |" if met else " missed |") if decided else " open |"


def _kinds(whys: list[str]) -> list[str]:
    """The first of those that differ in numbers alone."""
    return list({re.sub(r"[0-9.]+", "0", why): why for why in reversed(whys)}.values())[::-1]


def _reasons(row: dict[str, Any]) -> list[str]:
    return [
        f"| {row['name']} | {SHORT[name]} | {why.replace('|', '/')} |"
        for name, whys in row["declined"].items()
        for why in _kinds(whys)
        if name in FEATURES_TOLD and not (name == "communication" and row["ranks"] == 1)
        if whys != ["nothing that it serves"]
    ]


def _weights(row: dict[str, Any]) -> str:
    cells = []
    for key in ("weights", "weights_lossy"):
        told = row[key]
        cells += [told["verdict"], _distance(told["early"])]
    return f"| {row['name']} | {' | '.join(cells)} |"


def _parts(row: dict[str, Any]) -> list[str]:
    told = [
        f"| {row['name']} | {SHORT[part['name']]} | {'yes' if part['acted'] else 'no'}"
        f" | {part['share'] * 100:.0f} % | {_percent(part['gain'])}"
        f" ({_percent(part['low'])} to {_percent(part['high'])}) | {_percent(part['measured'])} |"
        for part in row["parts"]
    ]
    if row["whole"]:
        predicted, measured = (_percent(row["whole"][key]) for key in ("predicted", "measured"))
        told.append(f"| {row['name']} | whole | | | {predicted} | {measured} |")
    return told


def _percent(gain: float | None) -> str:
    return "-" if gain is None else f"{gain * 100:+.1f} %"


def _trial(row: dict[str, Any]) -> str:
    told = row["tuning"]
    pays = "-" if told["pays"] is None else f"{told['pays']:.0f} s"
    return f"| {row['name']} | {told['seconds']:.0f} s | {told['cost']:.0f} s | {pays} |"


def _distance(value: float | None) -> str:
    return "-" if value is None else f"{value:.0e}" if value else "0"


def _rounded(value: float) -> float:
    return round(value, 3)


def last_line(record: dict[str, Any]) -> str:
    return json.dumps(line(record))
