# SPDX-License-Identifier: Apache-2.0
"""Dashboards as the tests read them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "dashboards" / f"{name}.json").read_text())
    return found


def queries(dashboard: dict[str, Any]) -> list[tuple[str, str]]:
    """Every query of panels and annotations, with what it is for."""
    found = []
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            found.append((f"{panel['title']} {target['refId']}", target["expr"]))
    for note in dashboard["annotations"]["list"]:
        found.append((f"annotation {note['name']}", note["expr"]))
    return found


def finite(series: dict[str, Any]) -> list[float]:
    return [float(value) for _, value in series["values"] if math.isfinite(float(value))]
