# SPDX-License-Identifier: Apache-2.0
"""Runs a training program as it is, and writes when this rank reaches each stage of its start:
RECOVERY_PIPE=PIPE marked.py PROGRAM ARGUMENTS…. A line is "RANK PID STAGE SECONDS", by the
monotonic clock.
"""

from __future__ import annotations

import os
import sys
import time

STARTED, IMPORTED, JOINED, STEPPED = "started", "imported", "joined", "stepped"


def note(stage: str) -> None:
    line = f"{os.environ['RANK']} {os.getpid()} {stage} {time.monotonic()}\n"
    os.write(_pipe, line.encode())


if __name__ == "__main__":
    # A line is shorter than what a pipe takes whole.
    _pipe = os.open(os.environ["RECOVERY_PIPE"], os.O_WRONLY | os.O_CLOEXEC)
    note(STARTED)

    import runpy

    import torch
    import torch.distributed as dist

    join, step = dist.init_process_group, torch.optim.AdamW.step

    def init_process_group(*arguments: object, **options: object) -> None:
        note(IMPORTED)
        join(*arguments, **options)
        note(JOINED)

    def first_step(optimizer: torch.optim.AdamW, *arguments: object) -> object:
        result = step(optimizer, *arguments)
        note(STEPPED)
        torch.optim.AdamW.step = step
        return result

    dist.init_process_group = init_process_group
    torch.optim.AdamW.step = first_step
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))  # noqa: PTH100, PTH120
    runpy.run_path(sys.argv[0], run_name="__main__")
