# SPDX-License-Identifier: Apache-2.0
"""What paceline.explain() says, as text and as a dict. Only what is known of this process, nothing
promised.
"""

from __future__ import annotations

import os
import sys

from paceline._inject import disabled
from paceline._marks import trace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TRACING = "step tracing"
OPTIMIZERS = "fused optimizers"
LOADERS = "loader"
PRECISION = "mixed precision"
OPERATORS = "fused operators"
GRAPHS = "CUDA graphs"
COMMUNICATION = "communication"
# Of others: Bitwise.
_NUMERICS = {
    OPTIMIZERS: "Reordered",
    PRECISION: "Lossy",
    OPERATORS: "Reordered",
    COMMUNICATION: "Reordered",
}
_REPORTS = {
    OPTIMIZERS: ("paceline.optim._report", "PACELINE_OPTIMIZER is not set"),
    LOADERS: ("paceline.loader._report", "PACELINE_LOADER is not set"),
    COMMUNICATION: ("paceline.comm._report", "PACELINE_COMMUNICATION is not set"),
}
_TITLES = {
    OPTIMIZERS: "fused optimizers in place of PyTorch's own",
    LOADERS: "our iterator in place of PyTorch's own in loaders",
    COMMUNICATION: "gradients of DistributedDataParallel over our communicator",
}

model_given = ""  # class of the last model given to paceline.accelerate


def features() -> dict[str, Any]:
    """By feature: state ("on" or "off"), reason, numerics class, and each object of the program
    that it has met: `seen`.
    """
    stopped = "off (PACELINE_DISABLE=1)" if disabled() else ""
    marks = sys.modules.get("paceline._torch_marks")
    on = trace.lib is not None
    tracing = _feature(stopped or f"{'on' if on else 'off'} ({trace.reason})", TRACING, [])
    tracing["patches"] = dict(getattr(marks, "patches", {}))
    tracing["mark_cost_ns"] = trace.mark_cost_ns if on else None
    found = {TRACING: tracing}
    for name, (module, not_asked) in _REPORTS.items():
        report = sys.modules.get(module)
        switch = report.switch if report is not None else f"off ({not_asked})"
        found[name] = _feature(stopped or switch, name, report.seen() if report is not None else [])
        found[name]["numerics"] = getattr(report, "numerics", found[name]["numerics"])
    found[PRECISION] = _precision(stopped)
    left = f"off ({model_given or 'every model'} is left as it is: there are none for any model)"
    found[OPERATORS] = _feature(left, OPERATORS, [])
    graph = sys.modules.get("paceline.graph")
    steps = graph.captured if graph is not None else []
    told = os.environ.get("PACELINE_CUDA_GRAPH", "")
    why = "no paceline.graph.WholeStep has captured one"
    if graph is not None:
        why = graph.why_none()
    elif told not in ("", "Auto"):
        why = f"PACELINE_CUDA_GRAPH is {told}"
    found[GRAPHS] = _feature(f"on ({', '.join(steps)})" if steps else f"off ({why})", GRAPHS, [])
    return found


def _precision(stopped: str) -> dict[str, Any]:
    amp, injected = sys.modules.get("paceline.amp"), sys.modules.get("paceline._precision")
    asked = amp.decorated if amp is not None else []
    switch = injected.switch if injected is not None else "off (PACELINE_PRECISION is not set)"
    if stopped:
        switch = stopped
    if asked:
        also = f"{switch[4:-1]}, " if switch.startswith("on (") else ""
        switch = f"on ({also}{', '.join(asked)})"
    elif switch.startswith("off ("):
        left = amp.left if amp is not None else []
        switch = (
            f"{switch[:-1]}, and"
            f" {left[0] if left else 'the program does not call paceline.amp.decorate'})"
        )
    return _feature(switch, PRECISION, injected.seen() if injected is not None else [])


def _feature(switch: str, name: str, seen: list[dict[str, Any]]) -> dict[str, Any]:
    state, _, reason = switch.partition(" ")
    if reason.startswith("("):
        reason = reason[1:-1]
    return {
        "state": state,
        "reason": reason,
        "numerics": _NUMERICS.get(name, "Bitwise"),
        "seen": seen,
        "_said": switch,
    }


def as_dict() -> dict[str, Any]:
    return {
        name: {key: value for key, value in feature.items() if key[0] != "_"}
        for name, feature in features().items()
    }


def explain() -> str:
    if disabled():
        return "step tracing: off (PACELINE_DISABLE=1)"
    found = features()
    tracing = found[TRACING]
    lines = [f"step tracing: {tracing['_said']}; numerics class Bitwise: it only reads clocks"]
    if tracing["mark_cost_ns"] is not None:
        cost = tracing["mark_cost_ns"]
        lines.append(
            f"  cost: about {cost} ns a mark in Python; every record's overhead_ns has the whole"
            " of it"
        )
    lines += [f"  {name}: {what}" for name, what in sorted(tracing["patches"].items())]
    if not tracing["patches"]:
        lines.append("  PyTorch: not patched (not imported, or a way in was not on PYTHONPATH)")
    for name in _TITLES:
        feature = found[name]
        lines.append(f"{_TITLES[name]}: {feature['_said']}; numerics class {feature['numerics']}")
        lines += [f"  {entry['name']}: {entry['text']}" for entry in feature["seen"]]
    lines.append(f"{PRECISION}: {found[PRECISION]['_said']}; numerics class Lossy")
    lines += [f"  {entry['name']}: {entry['text']}" for entry in found[PRECISION]["seen"]]
    lines.append(f"{OPERATORS}: {found[OPERATORS]['_said']}")
    lines.append(f"{GRAPHS}: {found[GRAPHS]['_said']}; numerics class Bitwise")
    return "\n".join(lines)
