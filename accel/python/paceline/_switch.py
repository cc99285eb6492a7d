# SPDX-License-Identifier: Apache-2.0
"""The switches of a job: what is asked for, whether it keeps to the job's numerics class, and
whether all ranks can.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Any

from paceline._inject import say

AGREEMENT_TIMEOUT = timedelta(seconds=60)


def why_off(variable: str, what: str, reordered: str = "") -> str:
    """Empty where the job asks for it; else why not. `what` stays as it is; `reordered` names what
    is of class Reordered.
    """
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
        say(
            f"PACELINE_NUMERICS is {numerics!r}: it must be Bitwise, Reordered or Lossy; {what}"
            " left as they are"
        )
        return f"off (PACELINE_NUMERICS is {numerics}, none of Bitwise, Reordered and Lossy)"
    if numerics == "Bitwise":
        return f"off (PACELINE_NUMERICS is Bitwise, and {reordered} are of class Reordered)"
    return ""


def attempt() -> str:
    """Of the launcher's, and of torchrun's within, whose agent keeps one store for all that it
    restarts.
    """
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return (os.environ.get("PACELINE_ATTEMPT") or "0") + (f".{restarts}" if restarts else "")


def numbered(store: Any, name: str, rank: int) -> str:
    """The name with a number: how often this rank has come to it. The store counts, since a process
    may have been in other groups before, and a store in use in more than one.
    """
    return f"{name}/{store.add(f'{name}/times/{rank}', 1)}"


def agree(store: Any, name: str, rank: int, ranks: int, why: str) -> str:
    """Empty where all ranks are able; else why not, with the number of a rank that is not. `why`:
    the same of this rank. Raises TimeoutError, which names them, where others do not come.
    """
    refuse(store, name, f"rank {rank} cannot: {why}" if why else "")
    if arrive(store, name, rank) == ranks:
        told = store.get(f"{name}/why") if store.add(f"{name}/unable", 0) else b"yes"
        store.set(f"{name}/verdict", bytes(told).decode())
    try:
        verdict = await_verdict(store, name, ranks)
    except Exception:
        refuse(store, name, f"rank {rank} has come too early")
        raise
    return "" if verdict == "yes" else why or verdict


def refuse(store: Any, name: str, why: str) -> None:
    """Whoever comes later learns of it; nothing where `why` is empty."""
    if why:
        store.set(f"{name}/why", why)
        store.add(f"{name}/unable", 1)


def arrive(store: Any, name: str, rank: int) -> int:
    """How many have, this one included."""
    store.add(f"{name}/arrived/{rank}", 1)
    return int(store.add(f"{name}/arrived", 1))


def await_verdict(store: Any, name: str, ranks: int) -> str:
    began = time.monotonic()
    try:
        store.wait([f"{name}/verdict"], AGREEMENT_TIMEOUT)
    except RuntimeError:  # the stores have no exception of their own for a time that is over
        if time.monotonic() - began < AGREEMENT_TIMEOUT / timedelta(seconds=1):
            raise
        absent = [str(rank) for rank in range(ranks) if store.add(f"{name}/arrived/{rank}", 0) == 0]
        raise TimeoutError(
            f"rank {', '.join(absent)} has not come within {AGREEMENT_TIMEOUT.seconds} s: give all"
            " ranks the same PACELINE_ variables"
        ) from None
    return bytes(store.get(f"{name}/verdict")).decode()
