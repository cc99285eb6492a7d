# SPDX-License-Identifier: Apache-2.0
"""Panels drawn by Grafana's own components (dashboards/draw), from answers of Prometheus."""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from panels import ROOT

Ask = Callable[[str, str], list[dict[str, Any]]]


def name_of(legend: str, metric: dict[str, str], title: str) -> str:
    """As Grafana names a series: by the legend's labels."""
    if not legend:
        return title
    return re.sub(r"\{\{(\w+)\}\}", lambda found: metric.get(found[1], ""), legend)


def drawing(panels: list[dict[str, Any]], ask: Ask, start: float, end: float) -> dict[str, Any]:
    """The input of dashboards/draw. `ask` answers a panel's query, given its title."""
    series: dict[str, list[dict[str, Any]]] = {}
    for panel in panels:
        found = series.setdefault(str(panel["id"]), [])
        for target in panel["targets"]:
            for one in ask(panel["title"], target["expr"]):
                values = [
                    (at, float(value)) for at, value in one["values"] if math.isfinite(float(value))
                ]
                name = name_of(target.get("legendFormat", ""), one["metric"], panel["title"])
                found.append({"refId": target["refId"], "name": name, "values": values})
    return {"panels": panels, "series": series, "from": start, "to": end}


def draw(content: dict[str, Any], picture: Path) -> None:
    """Draws, and checks what the page says of each panel."""
    file = picture.with_suffix(".json")
    file.write_text(json.dumps(content))
    done = subprocess.run(
        [str(ROOT / "dashboards" / "draw"), str(file), str(picture)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    drawn: list[dict[str, Any]] = json.loads(done.stdout)
    titles = [panel["title"] for panel in content["panels"]]
    assert [panel["title"] for panel in drawn] == titles
    for panel in drawn:
        assert not panel["failed"], panel
        assert panel["series"] > 0, panel
        assert panel["type"] == "stat" or panel["ink"] > 1000, panel  # a number is no canvas


def at_top(panels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A part of a dashboard, moved to the top of a picture."""
    first = min(panel["gridPos"]["y"] for panel in panels)
    return [
        {**panel, "gridPos": {**panel["gridPos"], "y": panel["gridPos"]["y"] - first}}
        for panel in panels
    ]
