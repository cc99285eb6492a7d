# SPDX-License-Identifier: Apache-2.0
"""What the tuner keeps and leaves, on machines that are made up: no clock, no compiler, no wait."""

from __future__ import annotations

import math
import os
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(
    0,
    str(
        Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release"))
        / "runtime"
        / "python"
    ),
)

from paceline._core import effects  # noqa: E402
from paceline.tune import _pairs, _report, _tuner  # noqa: E402
from paceline.tune._ranks import Ranks  # noqa: E402
from paceline.tune._together import Together  # noqa: E402
from paceline.tune._trial import Trial, Verdict  # noqa: E402

StepTime = Callable[[int, bool], float]  # number of the step, with it or without -> seconds


class Fake:
    """A change that notes how it is used."""

    name = "fake"

    def __init__(self, why: str = "", fails_at: int = 0) -> None:
        self.why, self.fails_at, self.failed = why, fails_at, ""
        self.on = self.observed = self.dropped = self.proved = False
        self.uses: list[bool] = []

    def observe(self) -> None:
        self.observed = True

    def why_not(self) -> str:
        return self.why

    def use(self, on: bool) -> None:
        self.on = on
        self.uses.append(on)

    def drop(self) -> None:
        self.on, self.dropped = False, True

    def about(self) -> str:
        return "fake graphs"


class FakeUsed(Fake):
    """A change that is used from the start. `does`: whether it does anything while it is used."""

    def __init__(self, why: str = "", does: Callable[[], bool] = lambda: True) -> None:
        super().__init__(why)
        self.on, self.does, self.done = True, does, 0

    def observe(self) -> None:
        super().observe()
        self.done = 0

    def idle(self) -> str:
        return "" if self.done else "it did nothing"

    def drop(self) -> None:
        self.on, self.dropped = True, True


def run(change: Fake, steps: int, seconds: StepTime, after: float = 1.0) -> float:
    """Trains; returns the seconds that it took."""
    _report.forget()
    now = 0.0
    clock = lambda: now  # noqa: E731
    if isinstance(change, FakeUsed):
        tuner: _tuner.Tuner = _tuner.TunerOfUsed(change, after, clock)
    else:
        tuner = _tuner.Tuner(change, 120.0, after, clock)
    for step in range(steps):
        now += seconds(step, change.on)
        if isinstance(change, FakeUsed):
            change.done += change.on and change.does()
        if change.fails_at and len(change.uses) == change.fails_at:
            change.failed = "the compiler says no"
        tuner.step_ended()
    return now


def noisy(gain: float, seed: int = 0, noise: float = 0.05) -> StepTime:
    """A busy machine: its speed drifts by 20 % and more, and one step in 40 takes 8 times as long."""
    random_of = random.Random(seed)

    def seconds(step: int, on: bool) -> float:
        drift = 1 + 0.2 * math.sin(step / 300) + 0.1 * math.sin(step / 37)
        spike = 8.0 if random_of.random() < 1 / 40 else 1.0
        return 0.1 * drift * spike * random_of.lognormvariate(0, noise) / (gain if on else 1.0)

    return seconds


def test_a_change_that_gains_is_kept_and_one_that_loses_is_rolled_back() -> None:
    for gain, kept in ((1.3, True), (1.1, True), (0.85, False)):
        change = Fake()
        run(change, 1500, noisy(gain))
        assert change.on is kept, (gain, _report._status().seen)
        assert change.dropped is not kept


def test_what_changes_nothing_is_kept_in_fewer_than_one_of_fifty_trials() -> None:
    kept = 0
    for seed in range(200):
        change = Fake()
        run(change, 900, noisy(1.0, seed))
        kept += change.on
    assert kept <= 4, kept


def test_a_gain_of_a_tenth_is_found_on_a_busy_machine() -> None:
    found = 0
    for seed in range(50):
        change = Fake()
        run(change, 900, noisy(1.10, seed))
        found += change.on
    assert found >= 45, found


def test_the_cost_of_something_useless_is_bounded() -> None:
    change = Fake()
    with_it = run(change, 4000, lambda step, on: 0.3 if on else 0.1)
    without = 4000 * 0.1
    assert not change.on
    assert with_it - without < _tuner.BUDGET, with_it - without


def test_first_steps_that_take_too_long_end_the_trial() -> None:
    change = Fake()
    run(change, 200, lambda step, on: 130.0 if on else 0.1)
    assert change.dropped
    assert change.uses == [True]
    assert "its first steps cost 130 s" in _report._status().seen[0]["text"]


def test_steps_of_two_kinds_do_not_mislead() -> None:
    """As of two optimizers, or of an update of the target network in every other step."""
    for period in (2, 3, 5):
        change = Fake()
        run(change, 1500, lambda step, on, period=period: 0.3 if step % period == 0 else 0.05)
        assert not change.on, period


def test_evaluations_do_not_mislead() -> None:
    random_of = random.Random(1)

    def seconds(step: int, on: bool) -> float:
        evaluates = 5.0 if step % 50 == 49 else 0.0
        return evaluates + 0.1 * random_of.lognormvariate(0, 0.02) / (1.15 if on else 1.0)

    change = Fake()
    run(change, 2000, seconds)
    assert change.on

    change = Fake()
    run(change, 2000, lambda step, on: seconds(step, False))
    assert not change.on


def test_what_helps_first_and_hurts_later_is_rolled_back() -> None:
    random_of = random.Random(2)
    kept_until = 450

    def seconds(step: int, on: bool) -> float:
        gain = 1.2 if step < kept_until else 0.8
        return 0.1 * random_of.lognormvariate(0, 0.03) / (gain if on else 1.0)

    change = Fake()
    total = run(change, 20_000, seconds)
    assert change.dropped
    assert total < 20_000 * 0.1 * 1.01, "it cost more than 1 %"


def test_what_is_kept_is_looked_at_again_and_stays() -> None:
    change = Fake()
    total = run(change, 20_000, noisy(1.2, 3))
    assert change.on
    assert change.uses.count(False) > 12, "it was not looked at again"
    without = run(Fake("off"), 20_000, noisy(1.2, 3))
    assert total < without / 1.17


def test_what_is_used_from_the_start_is_left_only_where_it_does_not_gain() -> None:
    for gain, kept in ((1.1, True), (0.9, False)):
        change, seconds = FakeUsed(), noisy(gain)

        def step(number: int, on: bool, seconds: StepTime = seconds) -> float:
            assert on or number >= _tuner.FIRST_GAP, "it is on until it is looked at"
            return seconds(number, on)

        run(change, 900, step)
        assert change.uses and change.dropped is not kept
        assert _report._status().seen[0]["state"] == ("on" if kept else "off")


def test_what_is_used_and_does_nothing_is_not_judged() -> None:
    """It is looked at before each trial, and when a trial ends."""
    change = FakeUsed(does=lambda: False)
    run(change, 900, noisy(1.0))
    assert change.observed and change.on and not change.uses
    assert _report._status().seen[0]["text"] == "left as it is: it did nothing"

    change = FakeUsed()
    change.does = lambda: not change.uses  # it ends when the windows begin
    run(change, 900, noisy(1.0))
    assert change.on and change.uses
    assert _report._status().seen[0]["text"] == "left as it is: it did nothing"

    change = FakeUsed()
    change.does = lambda: step_of[0] < 700
    step_of = [0]

    def later(step: int, on: bool) -> float:
        step_of[0] = step
        return noisy(1.1, step)(step, on)

    run(change, 3000, later)
    assert change.on and 0 < len(change.uses) < 30, "it was tried before, and not again"
    assert _report._status().seen[0]["text"] == "left as it is: it did nothing"


def test_others_look_at_the_program_while_nothing_is_observed() -> None:
    """What another tuner holds the turn for may be the reason why a change does nothing."""
    now, turns = 0.0, [other := object()]
    change = FakeUsed()
    tuner = _tuner.TunerOfUsed(change, 0.0, clock=lambda: now, turns=turns)
    for _ in range(300):
        now += 0.1
        tuner.step_ended()
    assert not change.observed
    turns.remove(other)
    tuner.step_ended()
    assert change.observed and turns == [tuner]


def test_why_a_change_is_not_tried() -> None:
    change = Fake("there is no C++ compiler")
    run(change, 200, noisy(1.0))
    assert change.observed
    assert change.dropped
    assert change.uses == []
    assert _report._status().seen[0]["text"] == "left as it is: there is no C++ compiler"


def test_a_change_that_fails_is_undone() -> None:
    change = Fake(fails_at=1)
    run(change, 500, noisy(1.3))
    assert change.dropped
    assert "the compiler says no" in _report._status().seen[0]["text"]


def test_a_short_program_is_left_alone() -> None:
    change = Fake()
    run(change, 100, lambda step, on: 0.1, after=300.0)
    assert not change.observed


class Told:
    """What a tuner tells, where it is not told with the compiled models."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def waits(self, why: str) -> None:
        self.said.append(why)

    def left(self, name: str, why: str) -> None:
        self.said.append(f"left: {why}")

    def judged(self, name: str, verdict: Verdict, about: str) -> None:
        self.said.append("kept" if verdict.kept else "rolled back")


def test_it_says_what_it_waits_for() -> None:
    """Keras' optimizers, for example, are not PyTorch's: the tuner sees none of their steps."""
    for after, when in ((0.0, "16 steps"), (10.0, "10 s of training")):
        told = Told()
        tuner = _tuner.Tuner(Fake(), 120.0, after, report=told)
        unseen = f"it is tried after {when}; no step of PyTorch's optimizers has ended"
        assert told.said == [unseen]
        for _ in range(3):
            tuner.step_ended()
        assert told.said == [unseen, f"it is tried after {when}"]


def test_what_is_used_already_says_what_its_trial_waits_for() -> None:
    told, now = Told(), 0.0
    turns: list[object] = [other := object()]
    tuner = _tuner.TunerOfUsed(FakeUsed(), 0.0, lambda: now, report=told, turns=turns)
    for step in range(200):
        now += 0.1
        tuner.step_ended()
        if step == 150:
            assert told.said[-1] == "it is tried when no other change is"
            turns.remove(other)
    assert told.said[1:5] == [
        "it is tried after 16 steps",
        "it is tried after 128 more steps",
        "it is tried when no other change is",
        "it is being tried",
    ]


def test_two_changes_are_tried_one_after_the_other() -> None:
    """Both begin at the same step, and each is judged by steps in which the other one rests."""
    _report.forget()
    now, turns = 0.0, []
    good, bad, told = Fake(), Fake(), Told()
    clock = lambda: now  # noqa: E731
    tuners = [
        _tuner.Tuner(good, 120.0, 1.0, clock=clock, turns=turns, report=told),
        _tuner.Tuner(bad, 120.0, 1.0, clock=clock, turns=turns),
    ]
    for step in range(3000):
        now += noisy(1.0, step)(step, False) / (1.1 if good.on else 1.0) * (1.1 if bad.on else 1.0)
        tried, were = [*turns], (good.on, bad.on)
        for tuner in tuners:
            tuner.step_ended()
        for tuner, change, was in zip(tuners, (good, bad), were):
            assert change.on is was or turns == [tuner] or tried == [tuner]
        assert effects._trial is bool(turns), "the launcher hears of it"
    assert good.on and bad.dropped
    assert "kept" in told.said and "rolled back" not in told.said
    assert "rolled back" in _report._status().seen[0]["text"]


def test_a_tuner_that_ends_early_leaves_the_turn_to_others() -> None:
    turns: list[object] = []
    now = 0.0
    tuner = _tuner.Tuner(Fake(), 120.0, 1.0, clock=lambda: now, turns=turns)
    while not turns:
        now += 0.1
        tuner.step_ended()
    assert effects._trial
    tuner.release()
    assert not turns and not effects._trial


class Store:
    """As much of a store as ranks of one process need."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.counts: dict[str, int] = {}

    def add(self, key: str, amount: int) -> int:
        self.counts[key] = self.counts.get(key, 0) + amount
        return self.counts[key]

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def get(self, key: str) -> bytes:
        return self.values[key].encode()

    def wait(self, keys: list[str], _: object) -> None:
        if not all(key in self.values for key in keys):
            raise RuntimeError("timed out")


def ranks_of(count: int) -> list[Ranks]:
    store, found = Store(), []
    for rank in range(count):
        one = Ranks("test")
        one._store, one._name, one.rank, one.count = store, "tuner", rank, count
        found.append(one)
    return found


def test_ranks_begin_at_the_step_that_rank_0_names() -> None:
    zero, one = ranks_of(2)
    assert one.begins_at(16, True) is None
    assert zero.begins_at(17, False) is None
    assert zero.begins_at(18, True) == 64
    assert one.begins_at(19, False) is None  # it looks each 16 steps
    assert one.begins_at(32, False) == 64


def test_rank_0_names_no_step_before_all_ranks_have_come() -> None:
    zero, one = ranks_of(2)
    assert zero.begins_at(18, True) is None and zero.lacks_ranks
    assert one.begins_at(16, False) is None
    assert zero.begins_at(19, True) is None, "it looks each 16 steps"
    assert zero.begins_at(32, True) == 80 and not zero.lacks_ranks
    assert one.begins_at(32, False) == 80


def test_a_rank_that_alone_has_something_to_try_never_waits() -> None:
    """It alone has imported the library, so no other rank has a tuner for it."""
    zero, _ = ranks_of(2)
    change, turns, told, now = FakeUsed(), [], Told(), 0.0
    tuner = _tuner.TunerOfUsed(change, 1.0, lambda: now, lambda: zero, report=told, turns=turns)
    for _ in range(1000):  # the store raises where a rank would wait
        now += 0.1
        tuner.step_ended()
    assert told.said[-1] == "it is tried when all ranks have something to try"
    assert not tuner.ended and not turns and not change.uses


def test_ranks_average_their_pairs_and_all_leave_with_one() -> None:
    zero, one = ranks_of(2)
    zero._store.set("tuner/look 1/1", '{"ratios": [0.2, 0.4], "why": ""}')
    ratios, why = zero.agreed([0.0, 0.2], "")
    assert (list(ratios), why) == (pytest.approx([0.1, 0.3]), "")
    one._looks = 1
    assert one.agreed((), "its first steps cost 130 s") == ((), "its first steps cost 130 s")
    assert zero.agreed([0.1], "")[1] == "its first steps cost 130 s"


def test_a_rank_that_has_nothing_to_try_waits_for_no_other() -> None:
    """It may be the only one that has imported the library. Others hear of it, and leave too."""
    zero, one = ranks_of(2)
    idle, busy = FakeUsed("no call was computed"), FakeUsed()
    now = 0.0
    tuners = []
    for ranks, change in ((zero, idle), (one, busy)):
        tuner = _tuner.TunerOfUsed(
            change, 0.0, lambda: now, lambda ranks=ranks: ranks, report=(told := Told())
        )
        tuners.append((tuner, change, told))
    for _ in range(400):
        now += 0.1
        for tuner, _, _ in tuners:  # the store raises where a rank would wait
            tuner.step_ended()
    for _, change, told in tuners:
        assert told.said[-1] == "left: no call was computed"
        assert not change.observed and not change.uses


def test_a_rank_that_stays_away_is_an_error_and_not_a_hang() -> None:
    zero, _ = ranks_of(2)
    with pytest.raises(RuntimeError):
        zero.agreed([0.1], "")


def test_ranks_that_must_not_differ_leave_with_one_that_waited_in_vain() -> None:
    """One of them has given up before the other came, whose wait would have been in time."""
    store = Store()
    zero, one = (Together("test") for _ in "ab")
    for rank, each in enumerate((zero, one)):
        each._store, each._name, each.rank, each.count = store, "tuner", rank, 2
    one_came = []

    def wait(keys: list[str], _: object) -> None:
        """Rank 1 comes as soon as rank 0 has given up."""
        if not all(key in store.values for key in keys):
            if not one_came and any("/all/arrived" in key for key in store.counts):
                one_came.append(1)
                with pytest.raises(RuntimeError, match="rank 0 cannot: RuntimeError: timed out"):
                    one.agreed([0.1], "")
            if not all(key in store.values for key in keys):
                raise RuntimeError("timed out")

    store.wait = wait  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="timed out"):
        zero.agreed([0.1], "")
    assert one_came


def verdict_of(trial: Trial, seconds: Callable[[bool], float]) -> Verdict:
    for _ in range(100_000):
        verdict = trial.step(seconds(trial.with_it))
        if verdict is not None:
            return verdict
    raise AssertionError("no verdict")


def test_one_long_step_is_no_cost_of_what_is_tried() -> None:
    """An evaluation or a checkpoint of a minute falls into a window with it."""
    for again in (True, False):
        trial = Trial(0.1, budget=_tuner.BUDGET, first_budget=120.0, again=again)
        steps = iter(range(10**6))

        def seconds(on: bool, steps: Iterator[int] = steps) -> float:
            return 60.0 if next(steps) == 20 else 0.05 if on else 0.1

        verdict = verdict_of(trial, seconds)
        assert verdict.kept and verdict.gain is not None and verdict.gain.mean > 0.9, verdict
        assert abs(verdict.cost) < 5, verdict


def test_a_look_at_what_is_used_ends_when_the_slower_way_has_cost_enough() -> None:
    for slower_without in (True, False):
        trial = Trial(1.0, budget=_tuner.BUDGET, again=True)

        def seconds(on: bool, trial: Trial = trial, slower: bool = slower_without) -> float:
            if on is slower:
                return 1.0
            return 20.0 if (trial._order - 1) // 2 % 2 else 0.8  # in every other pair

        verdict = verdict_of(trial, seconds)
        assert verdict.kept is slower_without, verdict
        assert verdict.gain is not None and verdict.gain.pairs == 6
        assert re.search(r"in 6 pairs of windows, which cost 2\d\d s", verdict.reason), verdict
        assert (verdict.cost > 200) is slower_without


def test_something_new_is_left_when_its_windows_have_cost_enough() -> None:
    trial = Trial(1.0, budget=_tuner.BUDGET)
    verdict = verdict_of(trial, lambda on: (20.0 if trial._order // 2 % 2 else 0.8) if on else 1.0)
    assert not verdict.kept and verdict.gain is None
    assert re.fullmatch(r"trying it cost \d{3} s", verdict.reason), verdict


def test_windows_are_long_enough_and_few() -> None:
    """A window takes half a second, so that a switch and a clock do not matter."""
    assert Trial(0.001)._steps == 64
    assert Trial(0.02)._steps == 28
    assert Trial(3.0)._steps == 4


def test_intervals_hold_the_truth() -> None:
    """Of a gain of 7 % the interval at the verdict holds 7 % in nearly all trials."""
    held = 0
    for seed in range(100):
        seconds = noisy(1.07, seed)
        steps = iter(range(10**6))
        gain = verdict_of(Trial(0.1), lambda on: seconds(next(steps), on)).gain  # noqa: B023
        assert gain is not None
        held += gain.low <= 0.07 <= gain.high
    assert held >= 95, held


def test_pairs_of_one_speed_are_decided() -> None:
    """Without any noise the interval is a point."""
    gain = _pairs.gain_of([0.0] * 6)
    assert (gain.low, gain.high) == (0.0, 0.0)
    assert _pairs.decide(gain) is False
    assert _pairs.still_gains(_pairs.gain_of([0.0] * 24)) is False
