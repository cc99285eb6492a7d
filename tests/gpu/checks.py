# SPDX-License-Identifier: Apache-2.0
"""What the checks of a GPU share: a list of functions, each run whatever became of the others, with a line for each."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import paceline
import torch

Check = Callable[[], None]


def run(checks: list[Check]) -> int:
    """0 where all passed, else 1."""
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}, CUDA {torch.version.cuda}")
    failed = 0
    for function in checks:
        name = function.__name__.replace("_", " ")
        try:
            function()
            torch.cuda.synchronize()
            print(f"passed: {name}")
        except Exception:
            failed += 1
            print(f"FAILED: {name}\n{traceback.format_exc()}")
    print(paceline.explain())
    print(f"{len(checks) - failed} checks passed, {failed} failed")
    return 1 if failed else 0
