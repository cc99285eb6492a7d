# SPDX-License-Identifier: Apache-2.0
"""A pass over a loader without workers that may go over to workers, and back.

It is PyTorch's iterator of one process: that one's code draws the seed and begins the sampler, so
the program's generators are where PyTorch leaves them. The first batches are measured. If workers
are expected to gain, they make the rest of the pass, from tasks that the same sampler gives. If
they fail, or gain nothing, the training process makes the rest itself, beginning with the batch
that the program has not got yet. So no sample is lost or comes twice.

Workers end with each pass. The next pass forks new ones, which see what the program has changed in
the dataset meanwhile.
"""

from __future__ import annotations

import collections
import contextlib
import signal
import statistics
from collections.abc import Iterator as Tasks
from typing import Any, Callable, NamedTuple

import torch
from torch.utils.data import dataloader

from paceline._core.log import say
from paceline.loader._workers import gain, hazards, models, state
from paceline.loader._workers.plan import Plan

Base = dataloader._SingleProcessDataLoaderIter
# First batches that are not measured: files are opened, memory is touched, models are watched.
WARM = 1
BATCHES = 6  # that are measured
PREFETCH = 2  # batches ahead of each worker, as PyTorch's default
SLOWEST = 100  # a worker that takes so many times as long for a batch hangs
LEAST_TIMEOUT = 60.0  # seconds


class Asked:
    """The tasks of a pass. It keeps those whose batch the program has not got."""

    def __init__(self, tasks: Tasks[Any]) -> None:
        self._tasks = tasks
        self.open: collections.deque[Any] = collections.deque()
        self.error: Exception | None = None  # of the sampler, raised when its turn comes

    def __iter__(self) -> Tasks[Any]:
        while True:
            try:
                task = next(self._tasks)
            except StopIteration:
                return
            except Exception as error:
                self.error = error
                return
            self.open.append(task)
            yield task

    def rest(self) -> Tasks[Any]:
        """The tasks for the training process: those that are open, then the sampler's next ones."""
        yield from list(self.open)
        if self.error is not None:
            raise self.error
        yield from self._tasks


class Spent(NamedTuple):
    """Seconds: of time, of all processors, and of this thread's waits for a processor."""

    seconds: float
    processor: float
    delayed: float


class Meter:
    """Measures the first batches of a pass, and the rest of the steps between them."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.count = 0
        self.payload = 0  # bytes of a batch
        self.before: dict[str, Any] = {}  # the dataset's state
        self._made: list[Spent] = []
        self._rest: list[Spent] = []
        self._last = Spent(0.0, 0.0, 0.0)

    def _since(self) -> Spent:
        plan, last = self._plan, self._last
        self._last = Spent(plan.clock(), plan.processor(), plan.delayed())
        return Spent(*(now - then for now, then in zip(self._last, last)))

    def asked(self) -> None:
        """The program asks for a batch."""
        spent = self._since()
        if self.count > WARM:
            self._rest.append(spent)

    def got(self) -> None:
        """The batch is made."""
        spent = self._since()
        if self.count >= WARM:
            self._made.append(spent)
        self.count += 1

    @property
    def enough(self) -> bool:
        return len(self._rest) >= BATCHES

    def measured(self) -> gain.Measured:
        making = statistics.median(spent.seconds for spent in self._made)
        working = statistics.median(spent.processor + spent.delayed for spent in self._made)
        rest = statistics.median(spent.seconds for spent in self._rest)
        all_rest = Spent(*map(sum, zip(*self._rest)))
        whole = Spent(*map(sum, zip(*self._rest, *self._made)))
        busy = (all_rest.processor + all_rest.delayed) / max(1e-9, all_rest.seconds)
        starved = whole.delayed / max(1e-9, whole.processor + whole.delayed)
        return gain.Measured(making, working, making, rest, busy, self.payload, starved=starved)


class Pass(Base):  # type: ignore[misc, valid-type]
    """One pass.

    Args:
        kept: the settings of the loader, which the iterator with workers gets.
        start: makes that iterator.
    """

    _profile_name: str
    _sampler_iter: Tasks[Any]

    def __init__(self, loader: Any, kept: Any, plan: Plan, start: Callable[[Any], Any]) -> None:
        super().__init__(loader)
        self._profile_name = self._profile_name.replace(type(self).__name__, Base.__name__)
        self._plan, self._start, self._kept = plan, start, kept
        self._workers: Any = None  # the iterator that has them
        self._asked = Asked(self._sampler_iter)
        self._meter = Meter(plan) if plan.choice is None and not plan.why else None
        self._handed = 0
        self._shared: list[state.Place] = []  # what the samples' functions share
        self._state: dict[str, Any] = {}  # of what makes samples, when the workers were forked
        self._delivered = 0  # batches that workers made in this pass
        self._last = 0.0  # when the program got the last one

    def _next_data(self) -> Any:
        if self._handed == 0 and self._plan.workers > 0 and self._workers is None:
            self._go_over()
        if self._workers is not None:
            return self._next_of_workers()
        if self._meter is None:
            return self._made_here()
        self._meter.asked()
        if self._meter.enough:
            return self._next_of_workers() if self._decided(self._meter) else self._made_here()
        if self._meter.count > 0:
            batch = self._made_here()
            self._meter.got()
            return batch
        reads = self._reads()
        with reads.watching():
            batch = self._made_here()
        self._meter.got()
        self._look_at(batch, reads.found, self._meter)
        return batch

    def _reads(self) -> models.Reads:
        try:
            return models.Reads(hazards.models_of(self._kept))
        except Exception:  # a program's own objects may raise anything; they are looked at again
            return models.Reads([])

    def _made_here(self) -> Any:
        batch = super()._next_data()
        self._handed += 1
        return batch

    def _look_at(self, batch: Any, read: str, meter: Meter) -> None:
        try:
            meter.payload = hazards.payload(batch)
            self._shared = state.shared(self._kept)
            meter.before = state.fingerprint(self._kept, self._shared, closely=True)
            why = hazards.why_not_sent(batch)
            if read:
                why = (
                    why
                    or f"samples are made with a model's weights ({read}), which training changes"
                )
        except Exception as error:  # a program's own objects may raise anything
            why = f"{type(error).__name__}: {error}"
        if why:
            self._plan.left(why)
            self._meter = None

    def _decided(self, meter: Meter) -> bool:
        """Decides for the loader. Returns whether this pass has gone over to workers."""
        self._meter = None
        plan = self._plan
        try:
            after = state.fingerprint(self._kept, self._shared, closely=True)
            name = state.changed(meter.before, after)
            why = f"making samples changes {name}" if name else hazards.why_not_copied(self._kept)
            if why:
                plan.left(why)
                return False
            whole = length(self._index_sampler)
            plan.decide(meter.measured(), whole)
        except Exception as error:
            plan.left(f"{type(error).__name__}: {error}")
            return False
        if plan.workers == 0 or not plan.pays(None if whole is None else whole - self._handed):
            return False
        self._go_over()
        return self._workers is not None

    def _go_over(self) -> None:
        """Has workers make the rest of this pass."""
        plan, kept = self._plan, self._kept
        slowest = SLOWEST * plan.measured.making if plan.measured is not None else 0.0
        kept.num_workers, kept.prefetch_factor = plan.workers, PREFETCH
        kept.persistent_workers, kept.timeout = False, max(LEAST_TIMEOUT, slowest)
        kept.multiprocessing_context = torch.multiprocessing.get_context("fork")
        kept._index_sampler.rest = iter(self._asked)
        kept.generator = torch.Generator()  # for the workers' seed
        kept.generator.manual_seed(self._base_seed)
        try:
            self._shared = state.shared(kept)
            self._state = state.fingerprint(kept, self._shared)
            self._workers = self._start(kept)
        except Exception as error:
            if _of_a_signal_handler(error):
                raise
            self._go_back(error)

    def _next_of_workers(self) -> Any:
        try:
            now = state.fingerprint(self._kept, self._shared)
            name = state.changed(self._state, now)
            if name:
                raise RuntimeError(f"the program changed {name} in the middle of a pass")
            batch = self._workers._next_data()
        except StopIteration:
            if self._asked.error is not None:
                error, self._asked.error = self._asked.error, None
                raise error from None
            raise
        except Exception as error:
            # The sample may be what failed: then it fails again here, as it does without workers.
            if _of_a_signal_handler(error):
                raise
            self._go_back(error)
            return self._made_here()
        self._asked.open.popleft()
        self._handed += 1
        self._compare()
        return batch

    def _compare(self) -> None:
        """Goes back if steps take no less time than before. The first batches of workers are not
        counted, as they were begun together."""
        last, self._last = self._last, self._plan.clock()
        self._delivered += 1
        if self._delivered > PREFETCH * self._plan.workers + 1 and self._plan.note(
            self._last - last
        ):
            self._end_workers()

    def _end_workers(self) -> None:
        workers, self._workers = self._workers, None
        self._sampler_iter = self._asked.rest()
        if workers is not None:
            with contextlib.suppress(Exception):
                workers._shutdown_workers()

    def _go_back(self, error: Exception) -> None:
        why = f"{type(error).__name__}: {error}".strip().splitlines()[-1]
        self._plan.left(f"workers failed in a pass: {why}")
        self._end_workers()
        say(f"a loader has no workers any more, from batch {self._handed} of this pass on: {why}")


def length(sampler: Any) -> int | None:
    try:
        return len(sampler)
    except (TypeError, NotImplementedError):
        return None


def _of_a_signal_handler(error: BaseException) -> bool:
    """Whether the program's handler of a signal raised this error, which is the program's then."""
    codes = set()
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        function = getattr(handler, "__func__", handler)
        code = getattr(function, "__code__", None)
        module = str(getattr(function, "__module__", ""))
        if code is not None and not module.startswith("torch.utils.data"):
            codes.add(code)
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False
