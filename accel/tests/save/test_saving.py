# SPDX-License-Identifier: Apache-2.0
"""A rank saves when its launcher asks. The tests play the launcher: they write the request that
paceline._core.saving has mapped, and read what it tells.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(
    0,
    str(
        Path(os.environ.get("PACELINE_BUILD_DIR", Path(__file__).parents[3] / "build" / "release"))
        / "runtime"
        / "python"
    ),
)

from paceline._core import saving
from paceline._frameworks import lightning, transformers


class Launcher:
    def __init__(self, folder: Path) -> None:
        self.request = folder / "request"
        self.request.write_bytes(bytes(64))
        self.own = folder / str(os.getpid())

    def ask(self, step: int, asked: int = 1) -> None:
        with self.request.open("r+b") as file:
            file.seek(8)
            file.write(struct.pack("=QQ", step, asked))

    def told(self) -> tuple[int, int, int]:
        step, asked, saved = struct.unpack("=QQQ", self.own.read_bytes())
        return step, asked, saved


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    played = Launcher(tmp_path)
    monkeypatch.setenv("PACELINE_SAVE_REQUEST", str(played.request))
    return played


def test_without_a_launcher_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PACELINE_SAVE_REQUEST", raising=False)
    rank = saving.Saving()
    assert not any(rank.requested(-1) for _ in range(3))
    rank.saved()


def test_a_rank_says_that_it_can_save_by_its_first_question(launcher: Launcher) -> None:
    rank = saving.Saving()
    assert not launcher.own.exists()
    assert not rank.requested(-1)
    assert launcher.told() == (1, 0, 0)


@pytest.mark.parametrize(
    ("steps", "at", "expected"),
    [
        ([-1, -1, -1, -1], 3, [False, False, True, False]),
        ([0, 1, 2, 3], 2, [False, False, True, False]),
        ([10, 20, 30, 40], 21, [False, False, True, False]),
        ([0, 1, 2, 3], 9, [False, False, False, False]),
    ],
)
def test_the_agreed_step_is_told_once(
    launcher: Launcher, steps: list[int], at: int, expected: list[bool]
) -> None:
    rank = saving.Saving()
    launcher.ask(at)
    assert [rank.requested(step) for step in steps] == expected


def test_the_next_question_says_that_the_checkpoint_is_saved(launcher: Launcher) -> None:
    rank = saving.Saving()
    launcher.ask(5)
    assert rank.requested(5)
    assert launcher.told() == (5, 6, 0)
    assert not rank.requested(6)
    assert launcher.told() == (6, 6, 1)


def test_a_rank_that_trains_on_saves_again_at_the_step_of_the_next_request(
    launcher: Launcher,
) -> None:
    rank = saving.Saving()
    launcher.ask(5)
    assert rank.requested(5)
    launcher.ask(0, 0)
    assert not rank.requested(6)
    launcher.ask(9)
    assert [rank.requested(step) for step in (7, 8, 9, 10)] == [False, False, True, False]
    assert launcher.told() == (10, 10, 1)


def test_the_save_of_the_next_request_is_told_when_it_is_done(launcher: Launcher) -> None:
    rank = saving.Saving()
    launcher.ask(5)
    assert rank.requested(5)
    rank.saved()
    launcher.ask(6)
    assert rank.requested(6)
    assert launcher.told() == (6, 7, 0)
    rank.saved()
    assert launcher.told() == (6, 7, 1)


def test_training_that_is_finished_after_the_save_has_gone_on(launcher: Launcher) -> None:
    rank = saving.Saving()
    launcher.ask(5)
    assert rank.requested(5)
    rank.finished()
    assert launcher.told() == (6, 6, 1)
    rank.finished()
    assert launcher.told() == (6, 6, 1)


def test_training_that_is_finished_without_a_save_tells_nothing(launcher: Launcher) -> None:
    rank = saving.Saving()
    rank.finished()
    assert not launcher.own.exists()
    assert not rank.requested(3)
    rank.finished()
    assert launcher.told() == (3, 0, 0)


@pytest.mark.parametrize(("asked", "go_on"), [(1, False), (2, True)])
def test_a_rank_hears_whether_it_is_to_train_on(
    launcher: Launcher, asked: int, go_on: bool
) -> None:
    rank = saving.Saving()
    launcher.ask(5, asked)
    assert rank.requested(5)
    assert rank.go_on == go_on


def test_saved_says_so_at_once(launcher: Launcher) -> None:
    rank = saving.Saving()
    rank.saved()
    launcher.ask(1)
    assert rank.requested(-1)
    rank.saved()
    assert launcher.told() == (1, 2, 1)


@pytest.mark.parametrize(("answer", "expected"), [((8, 1), True), ((9, 1), False), ((0, 0), False)])
def test_a_rank_waits_at_its_step_until_the_launchers_agree(
    launcher: Launcher, answer: tuple[int, int], expected: bool
) -> None:
    rank = saving.Saving()
    assert not rank.requested(7)
    launcher.ask(0)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(rank.requested(8)))
    thread.start()
    while launcher.told()[0] != 8:  # it has told its step, and waits now
        assert thread.is_alive()
    assert not answers
    launcher.ask(*answer)
    thread.join(10)
    assert answers == [expected]


def test_a_rank_that_hears_of_no_step_goes_on_and_never_saves_alone(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(saving, "_LONGEST_WAIT", 0.0)
    rank = saving.Saving()
    launcher.ask(0)
    assert not rank.requested(1)
    launcher.ask(2)
    assert not rank.requested(2)
    assert "have not agreed" in capfd.readouterr().err


def test_a_forked_child_is_no_rank(launcher: Launcher) -> None:
    rank = saving.Saving()
    assert not rank.requested(1)
    launcher.ask(2)
    child = os.fork()
    if child == 0:
        os._exit(int(rank.requested(2)))
    assert os.waitpid(child, 0)[1] == 0
    assert launcher.told() == (1, 0, 0)


def test_a_folder_that_cannot_be_written_is_said(
    launcher: Launcher, capfd: pytest.CaptureFixture[str]
) -> None:
    launcher.own.mkdir()
    assert not saving.Saving().requested(1)
    assert "cannot be asked to save" in capfd.readouterr().err


class Handler:
    def on_step_end(self, args: Any, state: Any, control: Any) -> Any:
        return control

    def on_save(self, args: Any, state: Any, control: Any) -> Any:
        return control

    def on_train_end(self, args: Any, state: Any, control: Any) -> Any:
        return control


@pytest.fixture
def trainer(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """What transformers.trainer_callback has."""
    monkeypatch.setattr(transformers, "saving", saving.Saving())
    callbacks = types.ModuleType("transformers.trainer_callback")
    handler = type("Handler", (Handler,), dict(Handler.__dict__))
    callbacks.CallbackHandler = handler  # type: ignore[attr-defined]
    transformers.save_when_asked(callbacks)
    return callbacks


def end_step(trainer: types.ModuleType, step: int, strategy: str = "steps") -> Any:
    control = types.SimpleNamespace(should_save=False, should_evaluate=True)
    args = types.SimpleNamespace(save_strategy=strategy)
    state = types.SimpleNamespace(global_step=step)
    return trainer.CallbackHandler().on_step_end(args, state, control)


def test_the_trainer_saves_at_the_agreed_step(
    launcher: Launcher, trainer: types.ModuleType
) -> None:
    assert not end_step(trainer, 4).should_save
    launcher.ask(6)
    assert not end_step(trainer, 5).should_save
    control = end_step(trainer, 6)
    assert control.should_save
    assert not control.should_evaluate
    assert launcher.told() == (6, 7, 0)
    trainer.CallbackHandler().on_save(None, None, control)
    assert launcher.told() == (6, 7, 1)


@pytest.mark.parametrize(
    ("asked", "strategy", "evaluates"),
    [(1, "steps", False), (2, "steps", True), (2, "epoch", True), (2, "best", False)],
)
def test_the_trainer_evaluates_at_that_step_unless_a_pod_goes(
    launcher: Launcher, trainer: types.ModuleType, asked: int, strategy: str, evaluates: bool
) -> None:
    launcher.ask(6, asked)
    control = end_step(trainer, 6, strategy)
    assert control.should_save
    assert control.should_evaluate == evaluates


@pytest.mark.parametrize(("by_program", "step"), [(False, 7), (True, 6)])
def test_the_end_of_training_is_told_unless_the_program_asks_by_itself(
    launcher: Launcher, trainer: types.ModuleType, by_program: bool, step: int
) -> None:
    launcher.ask(6, 2)
    control = end_step(trainer, 6)
    transformers.saving.by_program = by_program
    trainer.CallbackHandler().on_train_end(None, None, control)
    assert launcher.told()[0] == step


def test_a_trainer_that_never_saves_is_left_alone(
    launcher: Launcher, trainer: types.ModuleType
) -> None:
    end_step(trainer, 4, "no")
    assert not launcher.own.exists()


def test_a_program_that_asks_by_itself_is_not_asked_twice(
    launcher: Launcher, trainer: types.ModuleType
) -> None:
    end_step(trainer, 1)
    rank = transformers.saving
    rank.by_program = True
    launcher.ask(2)
    assert not end_step(trainer, 2).should_save
    assert rank.requested(2)


def test_lightning_gets_a_callback_only_from_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    package = types.ModuleType("pytorch_lightning")
    package.Callback = type("Callback", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pytorch_lightning", package)
    monkeypatch.setenv("PACELINE_SAVE_REQUEST", "")
    assert lightning.pytorch_lightning_callbacks() == []
    monkeypatch.setenv("PACELINE_SAVE_REQUEST", "/request")
    (callback,) = lightning.pytorch_lightning_callbacks()
    assert isinstance(callback, package.Callback)
    monkeypatch.setenv("PACELINE_DISABLE", "1")
    assert lightning.pytorch_lightning_callbacks() == []


def test_lightning_goes_on_without_the_callback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PACELINE_SAVE_REQUEST", "/request")
    monkeypatch.setitem(sys.modules, "lightning.pytorch", types.ModuleType("lightning.pytorch"))
    monkeypatch.setitem(sys.modules, "lightning", types.ModuleType("lightning"))
    assert lightning.callbacks() == []
    assert "is not asked to save" in capfd.readouterr().err
