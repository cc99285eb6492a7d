# SPDX-License-Identifier: Apache-2.0
"""How ranks agree over a store whether all of them can use a feature, so that all do or none."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

AGREEMENT_TIMEOUT = timedelta(seconds=60)


def numbered(store: Any, name: str, rank: int) -> str:
    """The name with the number of times that this rank has asked for it. The store counts: the
    process may have been in other groups before, and several groups may use one store.
    """
    return f"{name}/{store.add(f'{name}/times/{rank}', 1)}"


def agree(store: Any, name: str, rank: int, ranks: int, why: str) -> str:
    """Returns an empty text if all ranks can, else the reason of a rank that cannot, with its
    number. `why` is the reason of this rank, empty if it can. Raises TimeoutError, which names the
    absent ranks, if some do not come. All ranks learn the same, also one that comes at the moment
    when another gives up.
    """
    refuse(store, name, f"rank {rank} cannot: {why}" if why else "")
    if arrive(store, name, rank) == ranks:
        able = store.add(f"{name}/unable", 0) == 0
        # A rank that has given up meanwhile counts in twos.
        able = store.add(f"{name}/decided", 1) == 1 and able
        store.set(f"{name}/verdict", "yes" if able else bytes(store.get(f"{name}/why")).decode())
    try:
        verdict = await_verdict(store, name, ranks)
    except Exception:
        if store.add(f"{name}/decided", 2) % 2 == 1:
            if store.add(f"{name}/unable", 0) == 0:
                return ""  # the last rank has just come, and told the others that all can
            raise
        refuse(store, name, f"rank {rank} has come too early")
        raise
    return "" if verdict == "yes" else why or verdict


def refuse(store: Any, name: str, why: str) -> None:
    """Tells `why` to ranks that come later. Does nothing if it is empty."""
    if why:
        store.set(f"{name}/why", why)
        store.add(f"{name}/unable", 1)


def arrive(store: Any, name: str, rank: int) -> int:
    """Counts this rank. Returns how many have arrived, this one included."""
    store.add(f"{name}/arrived/{rank}", 1)
    return int(store.add(f"{name}/arrived", 1))


def await_verdict(store: Any, name: str, ranks: int) -> str:
    """Waits for what all ranks have agreed on: "yes", or why not."""
    began = time.monotonic()
    try:
        store.wait([f"{name}/verdict"], AGREEMENT_TIMEOUT)
    except RuntimeError:  # stores raise no exception of their own kind when the time is over
        if time.monotonic() - began < AGREEMENT_TIMEOUT / timedelta(seconds=1):
            raise
        absent = [str(rank) for rank in range(ranks) if store.add(f"{name}/arrived/{rank}", 0) == 0]
        raise TimeoutError(
            f"rank {', '.join(absent)} has not come within {AGREEMENT_TIMEOUT.seconds} s: give all"
            " ranks the same PACELINE_ variables"
        ) from None
    return bytes(store.get(f"{name}/verdict")).decode()
