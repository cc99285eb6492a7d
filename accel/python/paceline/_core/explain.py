# SPDX-License-Identifier: Apache-2.0
"""What paceline.explain() says, as text and as a dict: what this process has done, and what each
remedy is predicted to gain.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from paceline._core import contract, predictions, reports
from paceline._core.environment import disabled, setting, told, why_disabled
from paceline._core.library import CUDA
from paceline._core.trace import DEVICE_TIMES, ENDED, trace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TRACING = "step tracing"
_TITLED = (reports.OPTIMIZERS, reports.LOADERS, reports.WORKERS, reports.COMMUNICATION)
_ALL = (
    *_TITLED,
    reports.PRECISION,
    reports.OPERATORS,
    reports.GRAPHS,
    reports.COMPILE,
    reports.NETWORK,
    reports.WINDOWS,
)


def features() -> dict[str, Any]:
    """By feature: state ("on" or "off"), reason, numerics class, `seen`, an entry for each object
    of the program that the feature has met, and `predicted`, what it would gain, or None.
    """
    stopped = f"off ({why_disabled()})" if disabled() else ""
    on = trace.lib is not None
    tracing = _told(stopped or f"{'on' if on else 'off'} ({trace.reason})", "Bitwise", [])
    tracing["patches"] = dict(trace.patches)
    tracing["mark_cost_ns"] = trace.mark_cost_ns if on else None
    found = {TRACING: tracing}
    for feature in _ALL:
        status = feature.status()
        switch = stopped or _unasked(feature) or status.switch
        # Programs that call paceline.amp get what they ask for, even where all else is off.
        if feature is reports.PRECISION and reports.is_registered(feature):
            switch = status.switch
        found[feature.name] = _told(switch, status.numerics or feature.numerics, status.seen)
    for name, prediction in predictions.found(found).items():
        found[name] |= {"predicted": prediction.told(), "_predicted": f"{prediction}"}
    return found


def _unasked(feature: reports.Feature) -> str:
    """The switch of a feature that explain() itself answers for, else an empty text."""
    if feature is reports.OPERATORS and not reports.is_registered(feature):
        said = told(contract.OPERATORS) or "not set"
        return f"off (every model is left as it is: {contract.OPERATORS} is {said})"
    if feature is reports.GRAPHS and not reports.is_registered(feature):
        said = setting(contract.CUDA_GRAPH)
        return "" if said == "Auto" else f"off ({contract.CUDA_GRAPH} is {said})"
    return ""


def _told(switch: str, numerics: str, seen: list[dict[str, Any]]) -> dict[str, Any]:
    state, _, reason = switch.partition(" ")
    if reason.startswith("("):
        reason = reason[1:-1]
    told = {"state": state, "reason": reason, "numerics": numerics, "seen": seen}
    return {**told, "predicted": None, "_said": switch}


def as_dict() -> dict[str, Any]:
    return {
        name: {key: value for key, value in feature.items() if key[0] != "_"}
        for name, feature in features().items()
    }


def explain() -> str:
    if disabled():
        return f"step tracing: off ({why_disabled()})"
    found = features()
    tracing = found[TRACING]
    lines = [f"step tracing: {tracing['_said']}; numerics class Bitwise: it only reads clocks"]
    if tracing["mark_cost_ns"] is not None:
        cost = tracing["mark_cost_ns"]
        lines.append(
            f"  cost: about {cost} ns a mark in Python; every record's overhead_ns has the whole"
            " of it"
        )
    if trace.lib is not None and trace.device_kind == CUDA:
        if tracing["patches"].get(DEVICE_TIMES) == "on":
            lines.append("  phases are measured on the clocks of the host and of the GPU")
        else:
            lines.append(
                "  phases are host time: on a GPU they say what the host did, and name no"
                " bottleneck"
            )
    lines += [f"  {name}: {what}" for name, what in sorted(tracing["patches"].items())]
    if not tracing["patches"]:
        lines.append("  PyTorch: not patched (not imported, or a way in was not on PYTHONPATH)")
    return "\n".join(lines + _feature_lines(found))


def _feature_lines(found: dict[str, Any], shown: tuple[reports.Feature, ...] = _ALL) -> list[str]:
    lines = []
    for feature in shown:
        told = found[feature.name]
        lines.append(f"{feature.title}: {told['_said']}; numerics class {told['numerics']}")
        lines += [f"  {entry['name']}: {entry['text']}" for entry in told["seen"]]
        if told["predicted"]:
            lines.append(f"  {told['_predicted']}")
    return lines


def write_at_exit(path: str) -> None:
    """Writes what acted into a file, if this is the training process of rank 0. To be registered
    when PyTorch is imported, so that it runs after the features have ended.
    """
    if trace.reason != ENDED or os.environ.get("RANK", "0") != "0":
        return
    with contextlib.suppress(OSError):  # the program's end must not change for a report
        found = features()
        # A feature registers when the job asks for it, or the program uses it.
        shown = tuple(feature for feature in _ALL if reports.is_registered(feature))
        if shown:
            Path(path).write_text("\n".join(_feature_lines(found, shown)) + "\n")
