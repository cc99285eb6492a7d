# SPDX-License-Identifier: Apache-2.0
"""What the environment of this process says."""

from __future__ import annotations

import os

from paceline._core import contract

# The switches of jobs that were written for Baidu's AIAK-Training.
AIAK = ("AIAK_HIERARCHICAL_ALLREDUCE", "AIAK_FP16_COMPRESSION", "AIAK_POWERSGD_COMPRESSION")


def disabled() -> bool:
    """Whether PACELINE_DISABLE=1 turns everything off."""
    return os.environ.get(contract.DISABLE) == "1"


def is_asked(variable: str) -> bool:
    """Whether the job asks for the feature that this variable switches."""
    return os.environ.get(variable, "") not in ("", "Disabled")


def attempt() -> str:
    """The number of this start of the ranks. torchrun restarts its own ranks within one attempt of
    the launcher, and its agent keeps one store for all of them, so its count is part of the number.
    """
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return (os.environ.get(contract.ATTEMPT) or "0") + (f".{restarts}" if restarts else "")
