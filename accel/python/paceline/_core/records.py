# SPDX-License-Identifier: Apache-2.0
"""Reads the last step records of this process back from its own ring (paceline/step_record.h)."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

_HEADER, _RECORD, _CAPACITY = 4096, 512, 1024
_WRITE_INDEX = 1024  # where the header has it
_KIND_STEP = 1
_FINAL = 1 << 7
_USER_STEP_VALID, _HOST_VALID = 1 << 0, 1 << 1
_SAMPLES_VALID, _TOKENS_VALID = 1 << 12, 1 << 13
MOST = 64  # steps that are read

# Phases that are read, by their numbers in a record.
PHASES = {
    "data_wait": 0,
    "forward": 2,
    "backward": 3,
    "comm_exposed": 4,
    "optimizer": 5,
    "unattributed": 15,
}


class Step(NamedTuple):
    """One step. `phases`: seconds of the host, in the order of PHASES. `shown`: the program's own
    number of the step, if it reports one.
    """

    wall: float
    phases: tuple[float, ...]
    samples: int | None
    tokens: int | None = None
    number: int = 0
    shown: int = 0


class Breakdown(NamedTuple):
    """Where the time of a step goes: seconds of a mean step, and shares of it by phase."""

    seconds: float
    shares: dict[str, float]
    steps: int


def read(ring: int, most: int = MOST) -> list[Step]:
    """The last records of steps in the ring behind this file descriptor, oldest first."""
    (end,) = struct.unpack("<Q", os.pread(ring, 8, _WRITE_INDEX))
    found = []
    for number in range(max(0, end - min(most, _CAPACITY - 1)), end):
        raw = os.pread(ring, _RECORD, _HEADER + number % _CAPACITY * _RECORD)
        step = _step(raw, number) if len(raw) == _RECORD else None
        if step is not None:
            found.append(step)
    return found


def _step(raw: bytes, number: int) -> Step | None:
    (seq, _, _, kind) = struct.unpack_from("<QHHB", raw)
    step, user_step = struct.unpack_from("<Qq", raw, 16)
    wall, _, _, flags = struct.unpack_from("<QIIQ", raw, 40)
    (valid,) = struct.unpack_from("<Q", raw, 448)
    if seq != number + 1 or kind != _KIND_STEP or flags & _FINAL or not valid & _HOST_VALID:
        return None
    phases = struct.unpack_from("<16Q", raw, 64)
    samples, tokens = struct.unpack_from("<QQ", raw, 384)
    return Step(
        wall / 1e9,
        tuple(phases[number] / 1e9 for number in PHASES.values()),
        samples if valid & _SAMPLES_VALID else None,
        tokens if valid & _TOKENS_VALID else None,
        step,
        user_step if valid & _USER_STEP_VALID else step,
    )


def breakdown(steps: Sequence[Step], least: int = 8) -> Breakdown | None:
    """The mean of the usual steps; None of fewer than `least`. The first steps of a program, and
    those that take three times as long as most (evaluation, checkpoints), are no guide.
    """
    walls = sorted(step.wall for step in steps)
    if len(walls) < least:
        return None
    median = walls[len(walls) // 2]
    usual = [step for step in steps if step.wall <= 3 * median]
    seconds = sum(step.wall for step in usual)
    if seconds <= 0:
        return None
    sums = [sum(step.phases[index] for step in usual) for index in range(len(PHASES))]
    shares = {name: each / seconds for name, each in zip(PHASES, sums)}
    return Breakdown(seconds / len(usual), shares, len(usual))


def batch(steps: Sequence[Step]) -> int | None:
    """Samples of a step: the most common number, None if unknown."""
    known = [step.samples for step in steps if step.samples]
    return max(sorted(set(known)), key=known.count) if known else None
