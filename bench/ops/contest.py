# SPDX-License-Identifier: Apache-2.0
"""Runs several ways of doing the same in turn, and measures their time and memory."""

from __future__ import annotations

import ctypes
import random
import statistics
from pathlib import Path
from typing import Any, Callable, NamedTuple

TURN = 0.02  # seconds


class Result(NamedTuple):
    """Medians of a contender over its turns."""

    ms: float  # mean of the calls of a turn
    first_ms: float  # of the first call, which finds memory and caches as another one left them
    mib: float  # the most memory beyond what was there before the call


def peak_mib(call: Callable[[], Any]) -> float:
    """The most resident memory that a call adds."""
    ctypes.CDLL(None).malloc_trim(0)  # memory that is free but kept would hide what the call takes
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status("VmRSS")
    result = call()
    peak = _status("VmHWM")
    del result
    return max(0.0, (peak - before) / 1024)


def _status(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{name}:")[1].split()[0])


def contest(
    contenders: dict[str, Callable[[], Any]],
    rounds: int,
    clock: Callable[[], float],
    warm_up: int = 2,
) -> dict[str, Result]:
    """Gives each contender a turn a round, in a new order each round."""
    for call in contenders.values():
        for _ in range(warm_up):
            call()
    memory = {name: peak_mib(call) for name, call in contenders.items()}
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    names = list(contenders)
    for _ in range(rounds):
        random.shuffle(names)
        for name in names:
            turns[name].append(_turn(contenders[name], clock))
    results = {}
    for name, own in turns.items():
        mean, first = (statistics.median(each) * 1e3 for each in zip(*own))
        results[name] = Result(mean, first, memory[name])
    return results


def _turn(call: Callable[[], Any], clock: Callable[[], float]) -> tuple[float, float]:
    """Calls until TURN seconds are over. Returns a call's mean time, and the first one's."""
    began = clock()
    call()
    first = elapsed = clock() - began
    calls = 1
    while elapsed < TURN:
        call()
        calls += 1
        elapsed = clock() - began
    return elapsed / calls, first
