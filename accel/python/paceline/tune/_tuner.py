# SPDX-License-Identifier: Apache-2.0
"""When a change is tried, and what follows.

A trial costs time once, and its gain comes with every later step. How long a job will run is
unknown; a job that has run for some minutes will probably run for as long again. So a trial begins
after AFTER seconds of training. PACELINE_TUNE_AFTER sets another time.

A run whose like has been tried before begins with what was shown then (`_signature`). What was kept
is used after the warm-up, and what was rolled back is left alone. What rank 0 knows holds for all.

What is kept is tried again after 128 steps, then after twice as many, and so on, since training may
change. All of it happens at the ends of steps, in the thread that trains.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Generator
from typing import Any, Protocol

import torch

from paceline._core import contract, effects, marks, predictions
from paceline._core.environment import has_restarted, setting
from paceline._core.log import say
from paceline.tune import _learned, _report
from paceline.tune._ranks import Ranks
from paceline.tune._signature import Memory
from paceline.tune._together import Together
from paceline.tune._trial import Trial, Verdict

WARM_STEPS = 16  # first steps of a program, which are no guide
OBSERVED_STEPS = 4
USUAL_STEPS = 8
FIRST_GAP, LONGEST_GAP = 128, 16384  # steps until what was kept is tried again
# Seconds that the windows of a trial may cost: 2 % of half an hour.
BUDGET = 36.0
# Seconds of training before an optimizer's step is tried, which costs nothing at first.
OPTIMIZER_AFTER = 10.0

Steps = Generator[None, float, Any]


class Change(Protocol):
    """What can be switched at a step's end. `proved` is set if an earlier run has kept it."""

    name: str
    failed: str
    proved: bool

    def observe(self) -> None: ...
    def why_not(self) -> str: ...
    def use(self, on: bool) -> None: ...
    def drop(self) -> None: ...
    def about(self) -> str: ...


class Used(Change, Protocol):
    """A change that is used from the start. `idle` says why it did nothing since `observe`; empty
    if it did something."""

    def idle(self) -> str: ...


# The tuner whose windows run: two trials at a time would mislead each other. All ranks end a trial
# at the same step, so they also begin the next one together.
TURNS: list[Any] = []


class Tuner:
    """Tries one change. `step_ended` is called at the end of every step."""

    def __init__(
        self,
        change: Change,
        first_budget: float,
        after: float,
        clock: Callable[[], float] = time.perf_counter,
        ranks: Callable[[], Ranks] | None = None,
        memory: Memory | None = None,
        report: Any = _report,
        turns: list[Any] | None = None,
    ) -> None:
        self._change, self._first_budget, self._after = change, first_budget, after
        self._clock, self._memory, self._report = clock, memory, report
        self._turns = [] if turns is None else turns
        self._make_ranks = ranks or functools.partial(Ranks, f"tuner of {change.name}")
        self._last: float | None = None
        self._life = self._live()
        next(self._life)
        self.ended = False

    def step_ended(self) -> None:
        """Never raises: what fails leaves the program as it was."""
        now = self._clock()
        last, self._last = self._last, now
        if last is None or self.ended:
            return
        try:
            self._life.send(now - last)
        except StopIteration:
            self.ended = True
        except Exception as error:
            self.ended = True
            self._leave(f"{type(error).__name__}: {error}")

    def release(self) -> None:
        """Lets other changes be tried."""
        if self in self._turns:
            self._turns.remove(self)
            effects.trial(False)

    def _leave(self, why: str) -> None:
        self.release()
        self._report.left(self._change.name, why)
        try:
            self._change.drop()
        except Exception as error:
            say(f"{self._change.name} could not be undone: {type(error).__name__}: {error}")

    # -- one step after the other; each `yield` gives the seconds of the next step

    def _live(self) -> Steps:
        known = yield from self._wait()
        if known is not None and not known["kept"]:
            self._leave(_learned.told(known))
            return
        self._change.proved = known is not None
        memory = self._memory if self._ranks.rank == 0 and known is None else None
        if memory is not None:
            memory.observe()
        self._change.observe()
        yield from self._pass(OBSERVED_STEPS)
        if memory is not None:
            memory.find(self._ranks.count)  # the verdict is noted for this training
        why = self._ranks.all_can(self._change.why_not())
        if why:
            self._leave(why)
            return
        if known is None:
            seconds = yield from self._pass(USUAL_STEPS)
            usual = self._ranks.greatest(statistics.median(seconds))
            self._report.waits("it is being tried")
            predictions.hold(self._change.name)
            kept = yield from self._try(usual, again=False)
        else:
            self._begin_with(known)
            kept = True
        if kept:
            yield from self._look_again()

    def _look_again(self) -> Steps:
        """Tries what is used, each time after a longer while, until it is left."""
        kept, gap = True, FIRST_GAP
        while kept:
            kept = yield from self._try_after(gap)
            gap = min(2 * gap, LONGEST_GAP)

    def _try_after(self, gap: int) -> Generator[None, float, bool]:
        seconds = yield from self._pass(gap)
        usual = self._ranks.greatest(statistics.median(seconds[-USUAL_STEPS:]))
        return (yield from self._try(usual, again=True))

    def _wait(self) -> Generator[None, float, dict[str, Any] | None]:
        """Returns what is known when all ranks are to begin: what an earlier run has shown, or None
        after the time that training takes before something is tried."""
        when = f"{self._after:.0f} s of training" if self._after else f"{WARM_STEPS} steps"
        # Other libraries have optimizers of their own, whose steps are never seen.
        self._report.waits(f"it is tried after {when}; no step of PyTorch's optimizers has ended")
        yield from self._pass(1)
        self._report.waits(f"it is tried after {when}")
        yield from self._pass(WARM_STEPS - 1)
        ranks = self._ranks = self._make_ranks()
        began, step, begins, known = self._clock(), WARM_STEPS, None, None
        if ranks.rank == 0 and self._memory is not None and self._memory.has_any():
            self._memory.observe()
            yield from self._pass(OBSERVED_STEPS)
            step += OBSERVED_STEPS
            known = self._memory.find(ranks.count)
            if known is not None and not known["checked"] and has_restarted():
                known = None  # it may be what ended the attempt before
        if ranks.rank == 0:
            ranks.of_rank_0(known)
        while begins is None or step < begins:
            if begins is None:
                ready = known is not None or self._clock() - began >= self._after
                begins = ranks.begins_at(step, ready)
                if ranks.lacks_ranks:
                    self._report.waits("it is tried when all ranks have something to try")
            if begins is None or step < begins:
                yield
                step += 1
        return known if ranks.rank == 0 else ranks.of_rank_0(None)

    def _begin_with(self, known: dict[str, Any]) -> None:
        if self._ranks.rank == 0 and self._memory is not None:
            self._memory.use(known)
        predictions.hold(self._change.name)
        self._change.use(True)
        self._settle()
        text = _learned.told(known)
        gain = known["gain"]
        self._report.began_with(self._change.name, text, None if gain is None else gain["mean"])
        say(f"{self._change.name}: {text}")

    def _pass(self, steps: int) -> Generator[None, float, list[float]]:
        seconds = []
        for _ in range(steps):
            seconds.append((yield))
        return seconds

    def _take_turn(self) -> Steps:
        while self._turns:
            yield
        self._turns.append(self)
        effects.trial(True)

    def _try(self, usual: float, again: bool) -> Generator[None, float, bool]:
        """Returns whether it is kept."""
        trial = Trial(
            usual,
            first_budget=self._first_budget,
            budget=BUDGET,
            again=again,
            agreed=self._ranks.agreed,
        )
        if self not in self._turns:
            yield from self._take_turn()
        used = again
        verdict = None
        while verdict is None:
            if trial.with_it != used:
                used = trial.with_it
                self._change.use(used)
                self._settle()
            verdict = trial.step((yield))
            if self._change.failed:
                verdict = trial.fail(self._change.failed)
        self.release()
        return self._judge(verdict, again)

    def _judge(self, verdict: Verdict, again: bool) -> bool:
        about = self._change.about()
        if verdict.kept:
            self._change.use(True)
        else:
            self._change.drop()
        if self._change.proved:
            about += "; begun with what an earlier run had shown"
        self._report.judged(self._change.name, verdict, about)
        # What a trial cost tells of a busy machine, too: it is tried again where code is at hand.
        told = verdict.gain is not None or bool(self._change.failed)
        if told and self._ranks.rank == 0 and self._memory is not None:
            self._memory.note(verdict)
        if not again or not verdict.kept:
            word = "kept" if verdict.kept else "rolled back"
            say(f"{self._change.name}: {word}: {verdict.reason}")
        return verdict.kept

    def _settle(self) -> None:
        """Lets the device end what it has, so that its time counts for the right window."""
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
            self._last = self._clock()


class TunerOfUsed(Tuner):
    """Tries a change that is used from the start, and leaves it where it does not gain.

    Whether it does anything may change as the program trains, as when another tuner compiles the
    model. So that is looked at just before each trial, when no other tuner has its turn, and once
    more when the trial ends.
    """

    def __init__(
        self,
        change: Used,
        after: float,
        clock: Callable[[], float] = time.perf_counter,
        ranks: Callable[[], Ranks] | None = None,
        report: Any = _report,
        turns: list[Any] | None = None,
    ) -> None:
        self._used = change
        super().__init__(change, math.inf, after, clock, ranks, report=report, turns=turns)

    def _live(self) -> Steps:
        yield from self._wait()
        yield from self._look_again()

    def _try_after(self, gap: int) -> Generator[None, float, bool]:
        self._report.waits(f"it is tried after {gap} more steps")
        yield from self._pass(gap)
        if self._is_left(self._used.why_not()):
            return False
        self._report.waits("it is tried when no other change is")
        while self._turns:
            yield
        self._report.waits("it is being tried")  # the turn writes this for the job's status
        yield from self._take_turn()
        self._used.observe()
        seconds = yield from self._pass(OBSERVED_STEPS)
        if self._is_left(self._used.idle()):
            return False
        usual = self._ranks.greatest(statistics.median(seconds))
        self._used.observe()
        return (yield from self._try(usual, again=True))

    def _judge(self, verdict: Verdict, again: bool) -> bool:
        if self._is_left(self._used.idle()):  # both kinds of windows were the same
            return False
        return super()._judge(verdict, again)

    def _is_left(self, why: str) -> bool:
        """Leaves it if a rank says why. That rank waits for no other: it may be the only one that
        has something to try."""
        why = self._ranks.agreed((), why)[1]
        if why:
            self._leave(why)
        return bool(why)


def after() -> float:
    """Seconds of training before a trial."""
    said = setting(contract.TUNE_AFTER)
    try:
        seconds = float(said)
        if seconds >= 0:
            return seconds
    except ValueError:
        pass
    say(f"{contract.TUNE_AFTER} is {said!r}: it must be a number of seconds; the default holds")
    return float(contract.DEFAULTS[contract.TUNE_AFTER])


def try_step(choice: Any) -> Callable[[], None]:
    """Tries an optimizer's step by the library beside PyTorch's (optim/_choice.py). All ranks call
    this within the same step. Returns a function that ends it.
    """
    tuner = Tuner(
        choice,
        first_budget=BUDGET,
        after=min(OPTIMIZER_AFTER, after()),
        ranks=functools.partial(Together, f"tuner of {choice.name}"),
        report=choice,
        turns=TURNS,
    )
    return drive(tuner)


def try_operators(change: Used) -> Callable[[], None]:
    """Looks whether the operators that are used gain (_inject/operators_trial.py). Returns a
    function that ends it.
    """
    return drive(TunerOfUsed(change, after(), report=change, turns=TURNS))


def drive(tuner: Tuner) -> Callable[[], None]:
    """Has the first optimizer of the program drive it. Returns a function that ends that."""

    def ended(optimizer: Any) -> None:
        if marks.optimizer_indices.of(optimizer) == 0:
            tuner.step_ended()
            if tuner.ended:
                end()

    def end() -> None:
        tuner.release()
        if ended in marks.step_ended:
            marks.step_ended.remove(ended)

    marks.step_ended.append(ended)
    return end
