# SPDX-License-Identifier: Apache-2.0
"""Tells the launcher which features act in rank 0, and what they gain: a small JSON document, for
the job's status, metrics and log (docs/designs/contracts.md).

It is written after 16, 32, 64, ... steps, with each verdict of the tuner, and at the end. What was
not measured has no gain, and a feature that has met nothing yet is left out.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
from pathlib import Path

from paceline._core import explain, marks, reports
from paceline._core.trace import ENDED, trace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FIRST_STEPS = 16
MOST_REASON = 256  # bytes
# The fields of spec.acceleration.
_FIELDS = {
    "loader": reports.LOADERS,
    "loaderWorkers": reports.WORKERS,
    "optimizer": reports.OPTIMIZERS,
    "communication": reports.COMMUNICATION,
    "precision": reports.PRECISION,
    "cudaGraph": reports.GRAPHS,
    "compile": reports.COMPILE,
    "operators": reports.OPERATORS,
}
# They may act without an object of the program that could be named.
_OF_THE_PROCESS = (reports.PRECISION, reports.GRAPHS)

_file = ""
_steps = 0
_trial = False
# What was told last of each field: a program's objects may be gone when it ends.
_told: dict[str, dict[str, Any]] = {}


def found() -> list[dict[str, Any]]:
    """What is known of each feature that the job asks for."""
    told = explain.features()
    effects = []
    for field, feature in _FIELDS.items():
        if reports.is_registered(feature):
            effect = _effect(told[feature.name], feature in _OF_THE_PROCESS)
            _told[field] = effect or _told.get(field, {})
            if _told[field]:
                effects.append({"feature": field, **_told[field]})
    return effects


def _effect(told: dict[str, Any], of_the_process: bool) -> dict[str, Any]:
    acts = told["state"] == "on"
    if not acts or (of_the_process and not told["seen"]):
        return {"kept": acts, "reason": _cut(told["reason"])}
    met = [entry for entry in told["seen"] if entry["state"] != "waiting"]
    kept = [entry for entry in met if entry["state"] == "on"]
    shown = kept or met
    if not shown:
        return {}
    more = f" (and {len(shown) - 1} more)" if len(shown) > 1 else ""
    predicted = told["predicted"]
    foreseen = f"; predicted {predicted['gain'] * 100:+.0f} %" if predicted else ""
    effect = {
        "kept": bool(kept),
        "reason": _cut(f"{shown[0]['name']}{more}: {shown[0]['text']}{foreseen}"),
    }
    gain = shown[0].get("gain")
    return effect if gain is None else {**effect, "gain": round(gain, 6)}


def _model() -> dict[str, Any] | None:
    """What the model computes in a step, if that was counted."""
    flops = sys.modules.get("paceline._tracing._flops")
    if flops is None:
        return None
    steps = trace.steps()[:FIRST_STEPS]
    counted = next((step for step in steps if step.number == flops.STEP), None)
    told: dict[str, Any] | None = flops.found(
        counted.samples if counted else None, counted.tokens if counted else None
    )
    return told


def _cut(text: str) -> str:
    return text.encode()[:MOST_REASON].decode(errors="ignore")


def write() -> None:
    """Writes what is known by now, if this is the training process of rank 0."""
    if not _file or (trace.lib is None and trace.reason != ENDED):
        return
    beside = Path(f"{_file}.{os.getpid()}")
    try:
        document: dict[str, Any] = {"version": 1, "trial": _trial, "effects": found()}
        model = _model()
        if model:
            document["model"] = model
        beside.write_text(json.dumps(document), encoding="utf-8")
        beside.replace(_file)
    except Exception:  # training must not end for a report
        with contextlib.suppress(OSError):
            beside.unlink()


def trial(runs: bool) -> None:
    """Tells whether a change is being tried: the launcher takes no slow step of a trial for one of
    the program."""
    global _trial
    _trial = runs
    write()


def install(file: str) -> None:
    """Writes to this file from now on, if this is rank 0."""
    global _file
    if os.environ.get("RANK", "0") == "0":
        _file = file
        marks.step_ended.append(_step_ended)
        # Registered when PyTorch is imported, so that it runs after the features have ended.
        atexit.register(write)


def _step_ended(optimizer: Any) -> None:
    global _steps
    if marks.optimizer_indices.of(optimizer) == 0:
        _steps += 1
        if _steps >= FIRST_STEPS and _steps & (_steps - 1) == 0:
            write()
