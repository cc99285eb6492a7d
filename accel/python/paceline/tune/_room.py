# SPDX-License-Identifier: Apache-2.0
"""Whether this process may try something that needs memory, also after a restart."""

from __future__ import annotations

from paceline._core import machine
from paceline._core.environment import has_restarted

# Bytes for each rank. A compiler and its helpers took 0.6 to 1.4 GB on the CPU (PyTorch 2.14).
NEEDED = 3 << 30


def why_not(proved: bool = False) -> str:
    """Why nothing that needs memory is tried; empty if it may be. `proved`: it was tried before,
    and kept.
    """
    if has_restarted() and not proved:
        # The trial itself may have been what ended the attempt before, by its memory.
        return "the job has restarted, and an attempt that trains is not put at risk"
    left = machine.seen().memory
    if left < NEEDED:
        return (
            f"{left / 2**30:.1f} GiB of memory are left to this rank; a trial wants"
            f" {NEEDED / 2**30:.0f}"
        )
    return ""
