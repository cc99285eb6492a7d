# SPDX-License-Identifier: Apache-2.0
"""The model that decides how many workers a loader gets. Pure functions of what was measured.

A step of the program is the wait for a batch, and the rest. With enough workers the wait vanishes,
if the making of a batch finds processors beside the rest of the step. A sample that waits, for a
disk or a network, needs none.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from paceline._core.machine import Machine

LEAST_GAIN = 1.03
MOST = 8  # workers that are started without being asked for
# Measured on two processors at 2 to 3 GHz: what the training process spends on taking a batch from
# a worker, and how fast it maps or copies the batch.
TAKING = 0.0003  # seconds
COPYING = 4e9  # bytes per second
STARTING = 0.05  # seconds until a forked worker has made its process ready
FORKED = 10e9  # bytes of the process per second; a fork copies its page tables
STARVED = 0.1  # share of time; schedulers make a ready thread wait only if they must
TIME_SHARING = 1.1  # computing beside a step that keeps every processor busy takes longer
# Batches take unequal times, and are handed out in order. Waiting is more uneven than computing,
# and a worker more that waits costs no processor.
UNEVEN, UNEVEN_WAITING = 1.15, 2.0
OWN = 64 << 20  # bytes that a worker takes beside copies of the program's memory
COPIED = 8  # of the program's own memory a worker copies one part in so many
AHEAD = 4  # batches that exist for each worker


class Measured(NamedTuple):
    """Medians for one batch. Times are in seconds."""

    making: float  # from its request until it is made, in one process
    working: float  # processor time of that, and time that it was ready to run without one
    waited: float  # that the program waited for it; without workers this is `making`
    rest: float  # of the step, between two batches
    busy: float  # processors that the rest keeps busy
    payload: int  # bytes
    workers: int = 0  # that the loader has
    starved: float = 0.0  # share of its time that the program was ready to run without a processor


class Choice(NamedTuple):
    """The number of workers, or the number that the loader has and the reason."""

    workers: int
    gain: float  # predicted: a step's time before, divided by that with these workers
    why: str


def idle(measured: Measured, machine: Machine) -> float:
    """Returns the processors that the rest of a step leaves idle. A step that keeps more than one
    busy has threads that wait for each other, so a processor that it uses in part is not idle. If
    the program had to wait for a processor, other processes use them all."""
    if measured.starved > STARVED:
        return 0.0
    used = measured.busy if measured.busy <= 1 else math.ceil(measured.busy - 0.15)
    return max(0.0, machine.processors - used)


def step(measured: Measured, machine: Machine, workers: int) -> float:
    """Predicts the seconds of a step with this number of workers."""
    taking = 0.0 if measured.workers else TAKING + measured.payload / COPYING
    rest = measured.rest + taking
    waiting = max(0.0, measured.making - measured.working)
    making = (UNEVEN * measured.working + UNEVEN_WAITING * waiting) / workers
    if measured.workers:  # the making was measured with what is uneven in it
        making = max(measured.making, measured.working) / workers
    free = min(float(workers), idle(measured, machine))
    shared = rest + TIME_SHARING * measured.working
    computing = min(measured.working / free, shared) if free > 0.05 else shared
    return max(rest, making, computing)


def choose(
    measured: Measured, machine: Machine, left: int | None, asked: int | None = None
) -> Choice:
    """Chooses the number of workers.

    Args:
        left: batches of a pass over which starting the workers must pay, None if unknown.
        asked: the number that the job asks for, which no prediction changes.
    """
    before = measured.rest + measured.waited
    each = OWN + machine.process // COPIED + AHEAD * measured.payload
    most = max(0, machine.memory // 2 // each)
    if asked is not None:
        workers = max(asked, measured.workers)
        return Choice(workers, before / max(1e-9, step(measured, machine, workers)), "")
    limit = measured.workers + min(max(0, MOST - measured.workers), most)
    if limit <= measured.workers:
        why = f"{machine.memory >> 20} MiB of memory are free, and each may take {each >> 20} MiB"
        return Choice(
            measured.workers, 1.0, why if most == 0 else f"no more than {MOST} are started unasked"
        )
    best = step(measured, machine, limit)
    workers = next(
        number
        for number in range(measured.workers + 1, limit + 1)
        if step(measured, machine, number) <= 1.02 * best
    )
    after = step(measured, machine, workers)
    gain = before / max(1e-9, after)
    if gain < LEAST_GAIN:
        return Choice(measured.workers, gain, _why_none(measured, machine))
    if left is not None and not _pays(measured, machine, workers, left):
        fewer = _fewer(measured, machine, workers, left)
        if fewer:
            return Choice(fewer, before / max(1e-9, step(measured, machine, fewer)), "")
        new = workers - measured.workers
        why = (
            f"the {left} batches of a pass would gain {(before - after) * left:.2f} s, and starting"
            f" {counted(new)} takes about {cost(new, machine):.2f} s"
        )
        return Choice(measured.workers, gain, why)
    return Choice(workers, gain, "")


def _saved(measured: Measured, machine: Machine, workers: int, left: int) -> float:
    return (measured.rest + measured.waited - step(measured, machine, workers)) * left


def _pays(measured: Measured, machine: Machine, workers: int, left: int) -> bool:
    """Whether so many batches save twice what starting the workers takes."""
    new = cost(workers - measured.workers, machine)
    return _saved(measured, machine, workers, left) >= 2 * new


def _fewer(measured: Measured, machine: Machine, most: int, left: int) -> int:
    """Returns the number below `most` that saves most in a pass too short for all of them, or 0."""
    before = measured.rest + measured.waited
    paying = [
        number
        for number in range(measured.workers + 1, most)
        if _pays(measured, machine, number, left)
        and before >= LEAST_GAIN * step(measured, machine, number)
    ]
    return max(
        paying,
        key=lambda number: (
            _saved(measured, machine, number, left) - cost(number - measured.workers, machine)
        ),
        default=0,
    )


def cost(workers: int, machine: Machine) -> float:
    """Returns the seconds that starting this many workers takes."""
    return workers * (STARTING + machine.process / FORKED)


def counted(workers: int) -> str:
    return f"{workers or 'no'} worker{'' if workers == 1 else 's'}"


def told(measured: Measured) -> str:
    """Returns the measured times in words."""
    waiting = max(0.0, measured.making - measured.working)
    own = f", of which {waiting * 1e3:.1f} ms waiting" if waiting > 0.1 * measured.making else ""
    waits = (
        f" and the program waited {measured.waited * 1e3:.1f} ms for it" if measured.workers else ""
    )
    return (
        f"a batch took {measured.making * 1e3:.1f} ms to make{own}{waits}, and the rest of a step"
        f" {measured.rest * 1e3:.1f} ms"
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _why_none(measured: Measured, machine: Machine) -> str:
    taking = TAKING + measured.payload / COPYING
    if measured.waited <= 2 * taking:
        return (
            f"a batch comes in {measured.waited * 1e3:.2f} ms, and taking one from a worker needs"
            f" about {taking * 1e3:.2f} ms"
        )
    if measured.working > measured.making / 2 and measured.starved > STARVED:
        return (
            f"its processors are busy: for {measured.starved:.0%} of the time the program was ready"
            f" to run and had none. {_sentence(told(measured))}"
        )
    if measured.working > measured.making / 2 and idle(measured, machine) < 0.5:
        return (
            f"its {machine.processors:.3g} processors are busy: the rest of a step uses"
            f" {measured.busy:.1f} of them. {_sentence(told(measured))}"
        )
    return f"the predicted gain is below {LEAST_GAIN - 1:.0%}: {told(measured)}"
