# SPDX-License-Identifier: Apache-2.0
"""The switches of a job: what is asked for, whether it keeps to the job's numerics class, and whether all ranks can."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from paceline._inject import say

AGREEMENT_TIMEOUT = timedelta(seconds=60)


def why_off(variable: str, what: str, reordered: str = "") -> str:
    """Empty where the job asks for it; else why not. `what` stays as it is; `reordered` names what is of class Reordered."""
    told = os.environ.get(variable, "")
    if told in ("", "Disabled"):
        return f"off ({variable} is {told or 'not set'})"
    if told != "Auto":
        say(f"{variable} is {told!r}: it must be Auto or Disabled; {what} left as they are")
        return f"off ({variable} is {told}, neither Auto nor Disabled)"
    numerics = os.environ.get("PACELINE_NUMERICS", "") or "Reordered"
    if not reordered:
        return ""
    if numerics not in ("Bitwise", "Reordered", "Lossy"):
        say(f"PACELINE_NUMERICS is {numerics!r}: it must be Bitwise, Reordered or Lossy; {what} left as they are")
        return f"off (PACELINE_NUMERICS is {numerics}, none of Bitwise, Reordered and Lossy)"
    if numerics == "Bitwise":
        return f"off (PACELINE_NUMERICS is Bitwise, and {reordered} are of class Reordered)"
    return ""


def agree(store: Any, name: str, ranks: int, able: bool) -> bool:
    """Whether all ranks are able. The last one to arrive writes what all then read."""
    if not able:
        store.add(f"{name}/unable", 1)
    if store.add(f"{name}/arrived", 1) == ranks:
        store.set(f"{name}/verdict", "no" if store.add(f"{name}/unable", 0) else "yes")
    try:
        store.wait([f"{name}/verdict"], AGREEMENT_TIMEOUT)
    except Exception:
        store.add(f"{name}/unable", 1)  # whoever comes later learns of it
        raise
    return bytes(store.get(f"{name}/verdict")) == b"yes"
