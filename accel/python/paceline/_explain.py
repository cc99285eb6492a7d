# SPDX-License-Identifier: Apache-2.0
"""What paceline.explain() says. Only what is known of this process, nothing promised."""

from __future__ import annotations

import sys

from paceline._inject import disabled
from paceline._marks import trace


def explain() -> str:
    if disabled():
        return "step tracing: off (PACELINE_DISABLE=1)"
    state = "on" if trace.lib is not None else "off"
    lines = [f"step tracing: {state} ({trace.reason}); numerics class Bitwise: it only reads clocks"]
    if trace.lib is not None:
        lines.append(
            f"  cost: about {trace.mark_cost_ns} ns a mark in Python; every record's overhead_ns has the whole of it"
        )
    marks = sys.modules.get("paceline._torch_marks")
    for name, what in sorted(getattr(marks, "patches", {}).items()):
        lines.append(f"  {name}: {what}")
    if not getattr(marks, "patches", {}):
        lines.append("  PyTorch: not patched (not imported, or a way in was not on PYTHONPATH)")
    report = sys.modules.get("paceline.optim._report")
    switch = report.switch if report is not None else "off (PACELINE_OPTIMIZER is not set)"
    lines.append(f"fused optimizers in place of PyTorch's own: {switch}; numerics class Reordered")
    if report is not None:
        lines += report.lines()
    loaders = sys.modules.get("paceline.loader._report")
    switch = loaders.switch if loaders is not None else "off (PACELINE_LOADER is not set)"
    lines.append(f"our iterator in place of PyTorch's own in loaders: {switch}; numerics class Bitwise")
    if loaders is not None:
        lines += loaders.lines()
    return "\n".join(lines)
