# SPDX-License-Identifier: Apache-2.0
"""The predictions for the program of this process, from the steps that it has made."""

from __future__ import annotations

import os

from paceline._core import marks, predict, records, reports
from paceline._core.library import CPU
from paceline._core.trace import trace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_program: predict.Program | None = None
_held: dict[str, records.Breakdown | None] = {}  # by name of the change


def install() -> None:
    """Looks at the first optimizer that makes a step."""
    marks.step_ended.append(_stepped)


def _stepped(optimizer: Any) -> None:
    global _program
    marks.step_ended.remove(_stepped)
    try:
        _program = program_of(optimizer)
    except Exception:  # a program's own optimizer may be anything: nothing is predicted then
        _program = None


def program_of(optimizer: Any) -> predict.Program:
    groups = optimizer.param_groups
    tensors = [each for group in groups for each in group["params"] if each.requires_grad]
    elements = sum(each.numel() for each in tensors)
    convolutions = sum(each.numel() for each in tensors if each.dim() >= 4)
    return predict.Program(
        len(tensors),
        elements,
        convolutions / max(1, elements),
        all(bool(group.get("fused")) for group in groups),
    )


def hold(change: str) -> None:
    """Keeps the steps until now as those that a change is predicted from: the next ones have been
    changed by its trial."""
    if change not in _held:
        _held[change] = records.breakdown(trace.steps())


def found(features: dict[str, dict[str, Any]]) -> dict[str, predict.Prediction]:
    """By name of the feature. `features`: what explain() has found of each."""
    predictions = {}
    workers = _of_workers(features[reports.WORKERS.name]["seen"])
    if workers is not None:
        predictions[reports.WORKERS.name] = workers
    breakdown = next(iter(_held.values()), None) or records.breakdown(trace.steps())
    if _program is None or breakdown is None or trace.device_kind != CPU:
        return predictions

    def acts(feature: reports.Feature) -> bool:
        return any(entry["state"] == "on" for entry in features[feature.name]["seen"])

    # An optimizer's trial comes early: its few steps are no guide to what compiling brings.
    predictions[reports.COMPILE.name] = predict.compiled(
        _held.get(reports.COMPILE.name) or breakdown, _program
    )
    predictions[reports.OPTIMIZERS.name] = predict.optimizer(
        breakdown, _program, acts(reports.OPTIMIZERS)
    )
    ranks = os.environ.get("WORLD_SIZE", "1")
    if ranks != "1":
        one_host = os.environ.get("LOCAL_WORLD_SIZE") == ranks
        predictions[reports.COMMUNICATION.name] = predict.gradients(
            breakdown, one_host, acts(reports.COMMUNICATION)
        )
    return predictions


def _of_workers(seen: list[dict[str, Any]]) -> predict.Prediction | None:
    """Of the loader that would gain most."""
    known = [
        predict.workers(entry["waited_seconds"], entry["rest_seconds"], entry["predicted_gain"] - 1)
        for entry in seen
        if entry["predicted_gain"] is not None
    ]
    return max(known, key=lambda one: one.gain, default=None)
