# SPDX-License-Identifier: Apache-2.0
"""What the environment of this process says."""

from __future__ import annotations

import os
import sys

from paceline._core import contract

# The switches of jobs that were written for Baidu's AIAK-Training.
AIAK = ("AIAK_HIERARCHICAL_ALLREDUCE", "AIAK_FP16_COMPRESSION", "AIAK_POWERSGD_COMPRESSION")
# Asked once: an extension that wants the lock may turn it on later.
_HAS_A_LOCK = getattr(sys, "_is_gil_enabled", lambda: True)()


def told(variable: str) -> str:
    """What the job says by this variable of paceline._core.contract, empty if nothing."""
    return os.environ.get(variable, "")


def setting(variable: str) -> str:
    """What the job says by this variable, else its default."""
    return told(variable) or contract.DEFAULTS[variable]


def why_disabled() -> str:
    """Returns why everything is off, or an empty text.

    Counters and lists here rely on the lock of the interpreter: nothing was tested without it.
    """
    if told(contract.DISABLE) == "1":
        return f"{contract.DISABLE}=1"
    return "" if _HAS_A_LOCK else "this Python runs without its global lock (GIL)"


def disabled() -> bool:
    """Whether everything is off."""
    return why_disabled() != ""


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
