# SPDX-License-Identifier: Apache-2.0
"""What the checks of a GPU share: a list of functions, each run whatever became of the others, with
a line for each; and rows of results, which tests/gpu/run prints together at its end.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import paceline
import torch

Check = Callable[[], None]


def emit(row: Mapping[str, Any]) -> None:
    """A line of JSON into the file that PACELINE_GPU_RESULTS names, at once: what ends later takes
    nothing away. Without one it is printed.
    """
    told = os.environ.get("PACELINE_GPU_RESULTS")
    if told:
        with Path(told).open("a") as file:
            file.write(json.dumps(row) + "\n")
    else:
        print(json.dumps(row), flush=True)


def overhead(ratios: list[float]) -> tuple[dict[str, Any], float]:
    """What a row says of pairs of times, and the least that the overhead may be.

    It is the median, with its 95 % interval by the binomial law of the pairs' order. That assumes
    nothing of their noise, which on a shared host has heavy tails.
    """
    ordered = sorted(100 * ratio for ratio in ratios)
    outside = max(0, int(len(ordered) / 2 - 0.98 * len(ordered) ** 0.5) - 1)
    low, high = ordered[outside], ordered[-1 - outside]
    told = {"overhead_percent": statistics.median(ordered), "interval_percent": [low, high]}
    return {**told, "pairs": len(ordered)}, low / 100


def run(checks: list[Check]) -> int:
    """0 where all passed, else 1."""
    faulthandler.register(signal.SIGTERM, chain=True)  # where its time was up, it says in what
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}, CUDA {torch.version.cuda}")
    failed: list[str] = []
    for function in checks:
        name = function.__name__.replace("_", " ")
        began = time.monotonic()
        try:
            function()
            torch.cuda.synchronize()
            print(f"passed: {name}, {time.monotonic() - began:.1f} s")
        except Exception:
            failed.append(name)
            print(f"FAILED: {name}, {time.monotonic() - began:.1f} s\n{traceback.format_exc()}")
    print(paceline.explain())
    print(f"{len(checks) - len(failed)} checks passed, {len(failed)} failed")
    emit({"checks": Path(sys.argv[0]).stem, "passed": len(checks) - len(failed), "failed": failed})
    return 1 if failed else 0
