# SPDX-License-Identifier: Apache-2.0
"""What the environment of this process says."""

from __future__ import annotations

import os

from paceline._core import contract

# The switches of jobs that were written for Baidu's AIAK-Training.
AIAK = ("AIAK_HIERARCHICAL_ALLREDUCE", "AIAK_FP16_COMPRESSION", "AIAK_POWERSGD_COMPRESSION")


def told(variable: str) -> str:
    """What the job says by this variable of paceline._core.contract, empty if nothing."""
    return os.environ.get(variable, "")


def setting(variable: str) -> str:
    """What the job says by this variable, else its default."""
    return told(variable) or contract.DEFAULTS[variable]


def disabled() -> bool:
    """Whether PACELINE_DISABLE=1 turns everything off."""
    return told(contract.DISABLE) == "1"


def is_asked(variable: str) -> bool:
    """Whether the job asks for the feature that this variable switches."""
    return told(variable) not in ("", "Disabled")


def attempt() -> str:
    """Returns the number of this start of the ranks.

    torchrun restarts its ranks within one attempt of the launcher, and its agent keeps one store
    for all of them. So the number contains torchrun's count, too.
    """
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return setting(contract.ATTEMPT) + (f".{restarts}" if restarts else "")


def has_restarted() -> bool:
    """Whether ranks of this job have been started before. torchrun counts from 0, as the launcher
    does."""
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return setting(contract.ATTEMPT) != "0" or restarts not in ("", "0")
