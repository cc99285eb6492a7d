# SPDX-License-Identifier: Apache-2.0
"""What was decided for one loader, and what the job asks for."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Iterable
from typing import Any, Callable

from paceline._core import contract, machine, reports
from paceline._core.environment import setting, told
from paceline._core.switches import why_off
from paceline.loader import _report
from paceline.loader._workers import gain

TRIED = 16  # steps with workers that are compared with those before


@functools.lru_cache
def _off(said: str, numerics: str) -> str:
    return why_off(
        contract.LOADER_WORKERS,
        "loaders without workers are",
        "random numbers of samples that workers make",
        number=True,
    )


def why_not_asked() -> str:
    """Returns an empty text if the job asks for workers and its class allows them, else why not."""
    return _off(told(contract.LOADER_WORKERS), setting(contract.NUMERICS))


def asked() -> int | None:
    """Returns the number of workers that the job asks for, or None if it is to be chosen."""
    said = told(contract.LOADER_WORKERS)
    return int(said) if said.isdecimal() else None


class Plan:
    """The workers of one loader, and why.

    Args:
        had: the workers that the program gives it.
        clock: seconds of time.
        processor: processor seconds of this process.
        delayed: seconds that this thread was ready to run without a processor.
        used: the same and processor seconds, of other processes.
        look: returns the machine.
    """

    def __init__(
        self,
        had: int = 0,
        clock: Callable[[], float] = time.perf_counter,
        processor: Callable[[], float] = time.process_time,
        delayed: Callable[[], float] = machine.delayed,
        look: Callable[[], machine.Machine] = machine.seen,
        used: Callable[[Iterable[int]], float] = machine.used,
    ) -> None:
        self.had, self.look = had, look
        self.clock, self.processor, self.delayed = clock, processor, delayed
        self.used = used
        self.asked = asked()
        self.workers = had
        self.why = ""  # why it gets no more workers
        self.measured: gain.Measured | None = None
        self.machine: machine.Machine | None = None
        self.choice: gain.Choice | None = None
        self.before = 0.0  # seconds of a step before
        self.after: float | None = None  # and with these workers
        self._periods: list[float] = []

    def left(self, why: str) -> None:
        self.workers, self.why = self.had, why

    def ask(self) -> None:
        """Takes the number that the job asks for, without measuring."""
        if self.asked is not None and self.asked > self.had:
            self.workers = self.asked

    def decide(self, measured: gain.Measured, whole: int | None) -> None:
        """Chooses the workers for passes of `whole` batches."""
        self.measured, self.machine = measured, self.look()
        self.before = measured.rest + measured.waited
        self.choice = gain.choose(measured, self.machine, whole, self.asked)
        self.workers, self.why = self.choice.workers, self.choice.why

    def pays(self, left: int | None) -> bool:
        """Whether starting the workers pays within so many batches, None if unknown."""
        if left is None or self.asked is not None or self.choice is None or self.machine is None:
            return True
        saved = self.before * (1 - 1 / max(1e-9, self.choice.gain))
        return saved * left >= 2 * gain.cost(self.workers - self.had, self.machine)

    def note(self, period: float) -> bool:
        """Notes the seconds of one step with workers. Returns whether they turned out to gain
        nothing."""
        if self.after is not None:
            return False
        self._periods.append(period)
        if len(self._periods) < TRIED:
            return False
        self.after = statistics.median(self._periods)
        if self.asked is not None or self.after < self.before or not self.before:
            return False
        self.left(
            f"tried with {gain.counted(self.workers)}: a step took {self.after * 1e3:.1f} ms, and"
            f" {self.before * 1e3:.1f} ms before"
        )
        return True

    def entry(self, name: str) -> dict[str, Any]:
        """Returns what paceline.explain() says of this loader."""
        measured, choice = self.measured, self.choice
        return {
            "name": name,
            "state": "off" if self.why or self.workers <= self.had else "on",
            "reason": self.why,
            "had": self.had,
            "workers": self.workers,
            "making_seconds": measured.making if measured else None,
            "working_seconds": measured.working if measured else None,
            "waited_seconds": measured.waited if measured else None,
            "rest_seconds": measured.rest if measured else None,
            "predicted_gain": choice.gain if choice else None,
            "step_seconds_before": self.before or None,
            "step_seconds": self.after,
            "text": self._text(),
        }

    def _text(self) -> str:
        none = gain.counted(self.had)
        if self.why:
            return f"{none}: {self.why}"
        if self.measured is None or self.choice is None:
            if self.workers > self.had:
                return f"{gain.counted(self.workers)} instead of {self.had}: as the job asks"
            return f"{none}: too few batches were made to measure them"
        after = (
            f"; a step took {self.before * 1e3:.1f} ms before and {self.after * 1e3:.1f} ms since"
            if self.after is not None
            else ""
        )
        why = "as the job asks" if self.asked is not None else gain.told(self.measured)
        return (
            f"{gain.counted(self.workers)} instead of {self.had or 'none'}: {why}; predicted gain"
            f" {self.choice.gain:.2f}{after}"
        )


def seen() -> list[dict[str, Any]]:
    """Returns an entry for each loader that was looked at. Loaders alike share one."""
    entries = [
        account.plan.entry(account.name)
        for account in _report.accounts()
        if account.plan is not None
    ]
    return list({(entry["name"], entry["text"]): entry for entry in entries}.values())


def _status() -> reports.Status:
    switch = _report.switch if not _report.switch.startswith("on") else why_not_asked() or "on"
    return reports.Status(switch, seen())


reports.register(reports.WORKERS, _status)
