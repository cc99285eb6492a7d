# SPDX-License-Identifier: Apache-2.0
"""What a run keeps of its trials, and how a later one begins with it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from programs import Train
from torch import nn

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(
    0,
    str(
        Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release"))
        / "runtime"
        / "python"
    ),
)

from paceline.tune import _cache, _learned, _report, _signature, _tuner  # noqa: E402
from paceline.tune._pairs import Gain  # noqa: E402
from paceline.tune._trial import Verdict  # noqa: E402
from test_tuner import Fake, noisy, ranks_of  # noqa: E402

DAY = 86400.0
LIKE = {"model": "Net", "batch": 8}
KEPT = Verdict(True, "+21.4 % (+18.0 to +24.9)", Gain(0.214, 0.18, 0.249, 6), 31.2)
LEFT = Verdict(False, "-3.0 % (-4.0 to -2.0)", Gain(-0.03, -0.04, -0.02, 6), 20.0)


class Clock:
    now = 1.8e9

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def learned(tmp_path: Path, clock: Clock) -> _learned.Learned:
    return _learned.Learned(tmp_path / "learned", clock)


def only(folder: Path) -> Path:
    (file,) = (folder / "learned").iterdir()
    return file


def test_what_is_kept_is_found_by_its_like_alone(learned: _learned.Learned) -> None:
    assert learned.find(LIKE, "compile") is None and not learned.has_any()
    learned.keep(LIKE, "compile", _learned.entry_of(KEPT))
    assert learned.has_any()
    learned.keep(LIKE, "optimizer", _learned.entry_of(LEFT))
    found = learned.find(LIKE, "compile")
    assert found is not None and found["kept"] and found["checked"]
    assert found["gain"] == {"mean": 0.214, "low": 0.18, "high": 0.249, "pairs": 6}
    assert found["cost"] == 31.2
    other = learned.find(LIKE, "optimizer")
    assert other is not None and not other["kept"]
    assert learned.find({**LIKE, "batch": 16}, "compile") is None
    assert learned.find(LIKE, "loader") is None


@pytest.mark.parametrize(
    ("days", "found"), [(0, True), (29, True), (31, False), (-0.5, True), (-2, False)]
)
def test_what_is_old_is_tried_anew(
    learned: _learned.Learned, clock: Clock, days: float, found: bool
) -> None:
    learned.keep(LIKE, "compile", _learned.entry_of(LEFT))
    clock.now += days * DAY
    assert (learned.find(LIKE, "compile") is not None) is found


def changed(document: dict[str, Any], **entry: Any) -> str:
    document["changes"]["compile"].update(entry)
    return json.dumps(document)


@pytest.mark.parametrize(
    "broken",
    [
        lambda document: "",
        lambda document: "{",
        lambda document: "[]",
        lambda document: "null",
        lambda document: "[" * 100_000,
        lambda document: json.dumps({**document, "version": 2}),
        lambda document: json.dumps({**document, "signature": {"model": "Other"}}),
        lambda document: json.dumps({**document, "changes": [1]}),
        lambda document: json.dumps({**document, "changes": {"compile": "kept"}}),
        lambda document: changed(document, kept=1),
        lambda document: changed(document, at="yesterday"),
        lambda document: changed(document, checked=None),
        lambda document: changed(document, gain=0.2),
        lambda document: changed(document, gain={"mean": "much"}),
        lambda document: changed(document, reason=7),
        lambda document: changed(document, reason="x" * 20_000),
    ],
)
def test_a_foreign_or_broken_file_counts_as_none_and_is_replaced(
    learned: _learned.Learned, tmp_path: Path, broken: Any
) -> None:
    learned.keep(LIKE, "compile", _learned.entry_of(KEPT))
    file = only(tmp_path)
    file.write_text(broken(json.loads(file.read_text())))
    assert learned.find(LIKE, "compile") is None
    learned.keep(LIKE, "compile", _learned.entry_of(KEPT))
    assert learned.find(LIKE, "compile") is not None
    assert only(tmp_path) == file


def test_a_folder_that_cannot_be_written_ends_nothing(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "file").write_text("")
    learned = _learned.Learned(tmp_path / "file" / "learned", clock)
    learned.keep(LIKE, "compile", _learned.entry_of(KEPT))
    assert learned.find(LIKE, "compile") is None


def test_files_are_few(
    learned: _learned.Learned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_learned, "MOST_FILES", 3)
    for batch in range(5):
        learned.keep({"batch": batch}, "compile", _learned.entry_of(KEPT))
        written = learned._file({"batch": batch})
        os.utime(written, (batch, batch))
    assert len(list((tmp_path / "learned").iterdir())) == 3
    known = [learned.find({"batch": batch}, "compile") is not None for batch in range(5)]
    assert known == [False, False, True, True, True]


# -- the tuner with it


class Memory:
    """A memory without a model: one entry."""

    def __init__(self, verdict: Verdict | None = None, checked: bool = True) -> None:
        self.entry: dict[str, Any] | None = None
        if verdict is not None:
            self.entry = {**_learned.entry_of(verdict), "at": 1.8e9, "checked": checked}
        self.used: list[bool] = []
        self.noted: list[Verdict] = []
        self.looked = 0

    def has_any(self) -> bool:
        return self.entry is not None

    def observe(self) -> None:
        self.looked += 1

    def find(self, ranks: int) -> dict[str, Any] | None:
        return self.entry

    def use(self, entry: dict[str, Any]) -> None:
        self.used.append(entry["checked"])

    def note(self, verdict: Verdict) -> None:
        self.noted.append(verdict)


def run(change: Fake, memory: Memory, steps: int, gain: float, after: float = 300.0) -> list[bool]:
    """Trains. Returns how each step was made."""
    _report.forget()
    now, made = 0.0, []
    tuner = _tuner.Tuner(change, 120.0, after, clock=lambda: now, memory=memory)  # type: ignore[arg-type]
    seconds = noisy(gain)
    for step in range(steps):
        made.append(change.on)
        now += seconds(step, change.on)
        tuner.step_ended()
    return made


def told() -> str:
    return str(_report._status().seen[0]["text"])


def test_a_verdict_is_noted() -> None:
    for gain, kept in ((1.3, True), (0.85, False)):
        memory = Memory()
        run(Fake(), memory, 1500, gain, after=1.0)
        assert memory.noted and memory.noted[0].kept is kept
        assert not memory.used


def test_a_program_of_which_nothing_can_be_known_is_looked_at_when_a_trial_begins() -> None:
    memory = Memory()
    run(Fake(), memory, 200, 1.2, after=1e9)
    assert memory.looked == 0
    run(Fake(), memory, 200, 1.2, after=1.0)
    assert memory.looked == 1


def test_a_failure_is_noted_and_what_only_cost_too_much_is_not() -> None:
    memory = Memory()
    run(Fake(), memory, 200, 1e-4, after=1.0)  # first steps of a quarter of an hour
    assert "its first steps cost" in told() and not memory.noted

    change, memory = Fake(), Memory()
    change.failed = "the compiler says no"
    run(change, memory, 200, 1.2, after=1.0)
    assert [verdict.reason for verdict in memory.noted] == ["the compiler says no"]


def test_what_was_kept_is_used_after_a_short_warm_up_and_looked_at_again() -> None:
    change, memory = Fake(), Memory(KEPT)
    run(change, memory, 60, 1.2)
    assert change.on and change.proved and memory.used == [True] and not memory.noted
    assert "kept in an earlier run (2027-01-15): +21.4 %" in told()
    assert _report._status().seen[0]["gain"] == 0.214

    change, memory = Fake(), Memory(KEPT)
    made = run(change, memory, 1000, 1.2)
    first = made.index(True)
    assert 16 <= first <= 40, first
    assert all(made[first : first + _tuner.FIRST_GAP])
    assert change.on and memory.noted[0].kept
    assert "begun with what an earlier run had shown" in told()


def test_what_was_kept_and_gains_no_more_is_rolled_back_and_noted() -> None:
    change, memory = Fake(), Memory(KEPT)
    run(change, memory, 2000, 0.8)
    assert change.dropped
    assert [verdict.kept for verdict in memory.noted] == [False]


def test_what_was_rolled_back_is_not_tried_again() -> None:
    change, memory = Fake(), Memory(LEFT)
    made = run(change, memory, 2000, 1.3, after=1.0)
    assert not any(made) and not memory.noted
    assert "left as it is: rolled back in an earlier run (2027-01-15): -3.0 %" in told()


@pytest.mark.parametrize(
    ("attempt", "checked", "begins"),
    [("0", True, True), ("0", False, True), ("1", True, True), ("1", False, False)],
)
def test_an_attempt_begins_with_it_unless_it_may_have_ended_the_one_before(
    monkeypatch: pytest.MonkeyPatch, attempt: str, checked: bool, begins: bool
) -> None:
    monkeypatch.setenv("PACELINE_ATTEMPT", attempt)
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    change = Fake()
    run(change, Memory(KEPT, checked), 100, 1.2)
    assert change.on is begins


def test_ranks_begin_with_what_rank_0_knows() -> None:
    """Also where the folder of another rank says something else, or is not there."""
    for verdict in (KEPT, LEFT, None):
        zero, one = ranks_of(2)
        one._store = zero._store
        changes, tuners, now = (Fake(), Fake()), [], 0.0
        for ranks, change, memory in zip((zero, one), changes, (Memory(verdict), Memory(LEFT))):
            ranks.all_can = lambda why: why  # type: ignore[method-assign]
            tuners.append(
                _tuner.Tuner(
                    change,
                    120.0,
                    300.0,
                    clock=lambda: now,  # noqa: B023
                    ranks=lambda ranks=ranks: ranks,
                    memory=memory,  # type: ignore[arg-type]
                )
            )
        for _ in range(120):
            now += 0.1
            for tuner in tuners:
                tuner.step_ended()
            assert changes[0].on is changes[1].on
        assert changes[0].on is (verdict is KEPT)
        assert [tuner.ended for tuner in tuners] == [verdict is LEFT] * 2


PROGRAM = """
from paceline.tune import _report, _signature, _tuner

class Quicker:
    name, failed, on, proved = "quicker", "", False, False
    def observe(self): pass
    def why_not(self): return ""
    def use(self, on): self.on = on
    def drop(self): self.on = False
    def about(self): return ""

change = Quicker()
memory = _signature.of_job(change.name)
_tuner.drive(_tuner.Tuner(change, 60.0, float(os.environ["AFTER"]), memory=memory))
dist.init_process_group("gloo")
model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5000):
    optimizer.zero_grad()
    loss_of(model, (torch.ones(2, 4), torch.ones(2))).backward()
    time.sleep(0.01 if change.on else 0.03)
    optimizer.step()
    done = torch.tensor(float(bool(_report._seen)))
    dist.all_reduce(done)
    if done == 2:
        break
print("told", dist.get_rank(), step, _report._seen)
"""


def test_two_real_ranks_begin_with_what_the_run_before_has_shown(
    train_by_fork: Train, tmp_path: Path
) -> None:
    said = {"PACELINE_LEARNED_DIR": str(tmp_path / "learned")}
    first = train_by_fork(PROGRAM, ranks=2, AFTER="0", **said)
    assert first.code == 0 and first.output.count("'text': 'kept: +") == 2, first.output
    assert len(list((tmp_path / "learned").glob("*.json"))) == 1
    second = train_by_fork(PROGRAM, ranks=2, AFTER="1e9", **said)
    assert second.code == 0, second.output
    assert second.output.count("'text': 'kept in an earlier run (") == 2, second.output
    steps = [int(line.split()[2]) for line in second.output.splitlines() if "told" in line]
    assert len(steps) == 2 and steps[0] == steps[1] < 100, second.output


# -- what makes trainings alike


def model(width: int = 4, activation: type[nn.Module] = nn.ReLU) -> nn.Module:
    return nn.Sequential(nn.Linear(4, width), activation())


def test_trainings_are_alike_in_all_that_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    one = _signature.signature([model()], 2)
    assert one == _signature.signature([model()], 2)
    assert one is not None and one["pytorch"] == torch.__version__ and one["paceline"]
    assert one["device"].startswith("cpu: ")
    assert _signature.signature([], 2) is None
    others = [
        _signature.signature([model(5)], 2),
        _signature.signature([model(activation=nn.Tanh)], 2),
        _signature.signature([model().double()], 2),
        _signature.signature([model().requires_grad_(False)], 2),
        _signature.signature([model(), model()], 2),
        _signature.signature([model()], 4),
    ]
    for name, value in (("NUMERICS", "Lossy"), ("PRECISION", "O1")):
        monkeypatch.setenv(f"PACELINE_{name}", value)
        others.append(_signature.signature([model()], 2))
    assert all(other != one for other in others)
    assert len({json.dumps(other) for other in others}) == len(others)


def test_a_memory_keeps_what_it_sees(tmp_path: Path) -> None:
    def seen() -> _signature.Memory:
        memory = _signature.Memory(_learned.Learned(tmp_path), "compile")
        memory.observe()
        model()(torch.ones(2, 4)).sum().backward()
        return memory

    first = seen()
    assert first.find(1) is None
    first.note(KEPT)
    second = seen()
    entry = second.find(1)
    assert entry is not None and entry["kept"]
    second.use(entry)
    third = seen().find(1)
    assert third is not None and not third["checked"]
    second.note(LEFT)
    fourth = seen().find(1)
    assert fourth is not None and not fourth["kept"] and fourth["checked"]
    assert seen().find(2) is None, "of another number of ranks"


# -- code that was compiled


def test_compiled_code_is_kept_unless_the_user_names_a_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(_cache.VARIABLE, raising=False)
    monkeypatch.delenv("PACELINE_LEARNED_DIR", raising=False)
    assert not _cache.keep()
    monkeypatch.setenv("PACELINE_LEARNED_DIR", str(tmp_path))
    monkeypatch.setenv(_cache.VARIABLE, "/mine")
    assert not _cache.keep() and os.environ[_cache.VARIABLE] == "/mine"
    monkeypatch.delenv(_cache.VARIABLE)
    assert _cache.keep() and os.environ[_cache.VARIABLE] == str(tmp_path / "inductor")
    (tmp_path / "file").write_text("")
    monkeypatch.delenv(_cache.VARIABLE)
    monkeypatch.setenv("PACELINE_LEARNED_DIR", str(tmp_path / "file"))
    assert not _cache.keep() and _cache.VARIABLE not in os.environ


def test_old_code_is_removed(tmp_path: Path) -> None:
    (tmp_path / "aa").mkdir()
    for name, age in (("old", 31), ("new", 29)):
        (tmp_path / "aa" / name).write_text("")
        os.utime(tmp_path / "aa" / name, (100 * DAY - age * DAY,) * 2)
    _cache.prune(tmp_path, 100 * DAY)
    assert [file.name for file in (tmp_path / "aa").iterdir()] == ["new"]
