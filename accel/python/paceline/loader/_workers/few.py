# SPDX-License-Identifier: Apache-2.0
"""Loaders that have workers, but too few: a pass is measured, and later passes get more.

A sample that draws at random then draws from another worker's stream. Samples and order stay.
"""

from __future__ import annotations

import statistics
from typing import Any

from torch.utils.data import dataloader

from paceline.loader._workers import gain, hazards, passes
from paceline.loader._workers.plan import Plan, why_not_asked

BATCHES = 16  # that are measured, once the workers have filled their queues
WAITS = 0.05  # share of a step; a program that waits less has enough workers


def planned(loader: Any, plan: Plan | None) -> Plan | None:
    """Returns the plan of a loader that has workers, or None if the job asks for no more. `plan` is
    what an earlier pass has found."""
    if why_not_asked():
        return None
    if plan is None or plan.had != loader.num_workers:
        plan = Plan(loader.num_workers)
        plan.left(_why_not(loader, plan))
        if not plan.why:
            plan.ask()
    return plan


def _why_not(loader: Any, plan: Plan) -> str:
    if loader._dataset_kind != dataloader._DatasetKind.Map:
        return "its dataset is iterable: each worker would yield all samples"
    if not hazards.is_known(loader.worker_init_fn):
        return "worker_init_fn is the program's own, and is told the workers' numbers"
    if loader.persistent_workers and plan.asked is None:
        return "persistent_workers=True: they stay as many as the program has started"
    method = hazards.start_method(loader)
    if method != "fork" and plan.asked is None:
        return f"its workers start by {method}: each one more starts Python and copies the dataset"
    return ""


class Meter:
    """Measures one pass, and decides for the next one."""

    def __init__(self, plan: Plan, ahead: int) -> None:
        self._plan = plan
        self._left = ahead + 1  # batches until the queues of the workers are as they stay
        self._measures = plan.choice is None  # else it looks at what the choice has brought
        self._waits: list[float] = []
        self._periods: list[float] = []
        self._began = (0.0, 0.0, 0.0)  # processor seconds here, waits for one, those of workers
        self._last = 0.0

    def handed(self, waited: float, workers: list[Any], sampler: Any) -> bool:
        """The program got a batch, for which it waited so many seconds. Returns whether there is
        more to measure in this pass."""
        plan = self._plan
        last, self._last = self._last, plan.clock()
        self._left -= 1
        if self._left > 0:
            return True
        if self._left == 0:
            self._began = self._spent(workers)
            return True
        if not self._measures:
            plan.note(self._last - last)
            return plan.after is None
        self._waits.append(waited)
        self._periods.append(self._last - last)
        if len(self._waits) < BATCHES:
            return True
        self._decide(workers, passes.length(sampler))
        return False

    def _spent(self, workers: list[Any]) -> tuple[float, float, float]:
        plan = self._plan
        return plan.processor(), plan.delayed(), plan.used([worker.pid for worker in workers])

    def _decide(self, workers: list[Any], whole: int | None) -> None:
        plan = self._plan
        own, delayed, theirs = (now - then for now, then in zip(self._spent(workers), self._began))
        waited, period = statistics.median(self._waits), statistics.median(self._periods)
        if waited < WAITS * period:
            plan.left(
                f"they are enough: the program waits {waited * 1e3:.2f} ms for a batch, in steps of"
                f" {period * 1e3:.1f} ms"
            )
            return
        rest = max(0.0, period - waited)
        busy = (own + delayed) / max(1e-9, BATCHES * rest)
        measured = gain.Measured(
            making=plan.had * period,  # a worker makes one while the others make theirs
            working=theirs / BATCHES,
            waited=waited,
            rest=rest,
            busy=busy,
            payload=0,
            workers=plan.had,
            starved=delayed / max(1e-9, own + delayed),
        )
        plan.decide(measured, whole)
