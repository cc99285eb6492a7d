# SPDX-License-Identifier: Apache-2.0
"""Draws the last line of bench/models/run: bench/models/chart.py RESULT.json PICTURE.svg"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "paceline"  # the same picture from the same figures

import matplotlib.pyplot as plt  # noqa: E402  # after the choice of what draws

COLORS = {
    "data": "#57606a",
    "targets": "#d1242f",
    "forward": "#1f6feb",
    "backward": "#0a7ea4",
    "optimizer": "#1a7f37",
}


def main() -> None:
    result, picture = sys.argv[1:]
    models = json.loads(Path(result).read_text().splitlines()[-1])["models"]
    figure, axes = plt.subplots(len(models), 1, figsize=(8, 1.5 * len(models)), squeeze=False)
    for axis, (model, found) in zip(axes[:, 0], models.items()):
        ways = list(found)
        begins = [0.0] * len(ways)
        for part, color in COLORS.items():
            widths = [found[way]["parts"][part] for way in ways]
            axis.barh(ways, widths, left=begins, color=color, label=part)
            begins = [begin + width for begin, width in zip(begins, widths)]
        axis.invert_yaxis()
        axis.set_title(model, loc="left", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1, 0].set_xlabel("milliseconds of a step")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper right", ncols=len(labels), frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.96))
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main()
