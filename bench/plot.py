#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the sweep of a benchmark as an SVG: bench/plot.py RESULT.json PICTURE.svg

    bench/comm/run --hosts 1 --ranks 8 | tail -n 1 > result.json
    bench/plot.py result.json picture.svg --title "8 ranks of one host"

RESULT.json is the last line of a benchmark whose `table` maps "CONTENDER BYTES" to values. Each
contender is a line, with bytes on the x axis and the chosen value on the y axis, both logarithmic.
"""

from __future__ import annotations

import argparse
import json
import math
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 40, 48
LABEL = 56  # pixels that the label of a size takes
COLORS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#bf3989", "#57606a", "#0a7ea4")
UNITS = {"busbw_MBs": "bus bandwidth, MB/s", "ms": "time, ms"}

Lines = dict[str, list[tuple[int, float]]]


def lines_of(table: dict[str, dict[str, float]], value: str) -> Lines:
    """The points of each contender, by rising size."""
    found: Lines = {}
    for key, row in table.items():
        name, size = key.rsplit(" ", 1)
        if value in row:
            found.setdefault(name, []).append((int(size), row[value]))
    return {name: sorted(points) for name, points in found.items()}


def size_text(size: int) -> str:
    unit, name = (1 << 20, "MiB") if size >= 1 << 20 else (1 << 10, "KiB")
    return f"{size / unit:g} {name}"


def powers_of_ten(low: float, high: float) -> list[float]:
    return [
        10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ]


class Scale:
    """Maps values to pixels on a logarithmic axis."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.start = math.log(low), start
        self.pixels = (end - start) / ((math.log(high) - self.low) or 1)

    def __call__(self, value: float) -> float:
        return round(self.start + (math.log(value) - self.low) * self.pixels, 1)


def text(x: float, y: float, words: str, style: str = "") -> str:
    return f'<text x="{x}" y="{y}" {style}>{escape(words)}</text>'


def labelled(sizes: list[int], across: Scale) -> list[int]:
    """The sizes whose labels have room: powers of two first, where not all have."""
    chosen: list[int] = []
    for size in sorted(sizes, key=lambda size: (size & (size - 1) != 0, size)):
        if all(abs(across(size) - across(other)) >= LABEL for other in chosen):
            chosen.append(size)
    return sorted(chosen)


def picture(lines: Lines, title: str, unit: str) -> str:
    sizes = sorted({size for points in lines.values() for size, _ in points})
    values = [value for points in lines.values() for _, value in points]
    ticks = powers_of_ten(min(values), max(values))
    across = Scale(sizes[0], sizes[-1], LEFT, WIDTH - RIGHT)
    up = Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
        f' height="{HEIGHT}" role="img" aria-label="{escape(title)}">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        '<g font-family="sans-serif" font-size="12" fill="#1f2328">',
        text(LEFT, 22, f"{title}: {unit}", 'font-size="14"'),
    ]
    for tick in ticks:
        parts.append(f'<path d="M{LEFT} {up(tick)}H{WIDTH - RIGHT}" stroke="#d0d7de"/>')
        parts.append(text(LEFT - 8, up(tick) + 4, f"{tick:g}", 'text-anchor="end"'))
    for size in labelled(sizes, across):
        below = text(across(size), HEIGHT - BOTTOM + 20, size_text(size), 'text-anchor="middle"')
        parts.append(below)
    # Names stand beside the last points, moved apart so that none covers another.
    free = float(TOP)
    for index, (name, points) in sorted(
        enumerate(lines.items()), key=lambda one: up(one[1][1][-1][1])
    ):
        color = COLORS[index % len(COLORS)]
        path = "L".join(f"{across(size)} {up(value)}" for size, value in points)
        parts.append(f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{across(size)}" cy="{up(value)}" r="3" fill="{color}"/>'
            for size, value in points
        ]
        free = max(free + 15, up(points[-1][1]))
        parts.append(text(WIDTH - RIGHT + 12, free + 4, name, f'fill="{color}"'))
    return "\n".join([*parts, "</g>", "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws the sweep of a benchmark as an SVG.")
    parser.add_argument("result", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--value", choices=UNITS, default="busbw_MBs")
    parser.add_argument("--title", default="")
    options = parser.parse_args()
    result = json.loads(options.result.read_text())
    title = options.title or result.get("title") or result["benchmark"]
    lines = lines_of(result["table"], options.value)
    if not lines:
        parser.error(f"{options.result} has no {options.value} in its table")
    options.picture.write_text(picture(lines, title, UNITS[options.value]))


if __name__ == "__main__":
    main()
