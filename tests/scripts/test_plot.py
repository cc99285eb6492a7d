# SPDX-License-Identifier: Apache-2.0
"""bench/plot.py draws a line for each contender, and larger values stand higher."""

from __future__ import annotations

import importlib.util
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("plot", ROOT / "bench" / "plot.py")
assert spec is not None and spec.loader is not None
plot = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plot)

TABLE = {
    "flat 4096": {"ms": 2.0, "busbw_MBs": 4.0},
    "flat 1048576": {"ms": 30.0, "busbw_MBs": 70.0},
    "tree 4096": {"ms": 1.0},
}


def test_a_line_for_each_contender() -> None:
    lines = plot.lines_of(TABLE, "ms")
    assert lines == {"flat": [(4096, 2.0), (1048576, 30.0)], "tree": [(4096, 1.0)]}
    assert plot.lines_of(TABLE, "busbw_MBs") == {"flat": [(4096, 4.0), (1048576, 70.0)]}

    picture = ElementTree.fromstring(plot.picture(lines, "A <sweep>", "time, ms"))
    words = [element.text for element in picture.iter() if element.tag.endswith("text")]
    assert {"A <sweep>: time, ms", "flat", "tree", "4 KiB", "1 MiB"} <= set(words)
    points = [element for element in picture.iter() if element.tag.endswith("circle")]
    low, high = (float(point.get("cy", "")) for point in points if point.get("fill") == "#1f6feb")
    assert low > high


def test_labels_of_many_sizes_do_not_cover_one_another() -> None:
    sizes = [int(4096 * 2 ** (step / 2)) // 4 * 4 for step in range(25)]
    across = plot.Scale(sizes[0], sizes[-1], plot.LEFT, plot.WIDTH - plot.RIGHT)
    places = [across(size) for size in plot.labelled(sizes, across)]
    assert len(places) > 3
    assert all(b - a >= plot.LABEL for a, b in zip(places, places[1:], strict=False))
    assert 4096 in plot.labelled(sizes, across)


def test_the_pictures_are_those_of_their_data() -> None:
    for data, value in (("comm-one-host", "busbw_MBs"), ("comm-four-hosts", "ms")):
        result = plot.json.loads((ROOT / f"docs/pictures/data/{data}.json").read_text())
        drawn = plot.picture(
            plot.lines_of(result["table"], value), result["title"], plot.UNITS[value]
        )
        assert drawn == (ROOT / f"docs/pictures/{data}.svg").read_text()
