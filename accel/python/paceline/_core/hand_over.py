# SPDX-License-Identifier: Apache-2.0
"""Hands Paceline's numbers to MLflow, Weights & Biases or TensorBoard (`paceline.log_to`).

A thread reads the last steps from the ring of this process, some times a minute, and logs them into
the run that the program has open. The training thread does nothing for it but one thing: MLflow
keeps its open run by thread, so that thread is asked for it once each time. Nothing here raises,
and a target that fails several times is dropped.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import threading
import time

from paceline._core import effects, marks
from paceline._core.log import say, say_once
from paceline._core.records import PHASES
from paceline._core.trace import trace, when_open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paceline._core.records import Step

EVERY = 10.0  # seconds between two reports
_MOST_FAILURES = 3
_LAST_WORDS = 5.0  # seconds that the end of the program may wait for the last report


class Target:
    """Where numbers go. `log` is called by the thread alone."""

    def at_step(self) -> None:
        """On the training thread, at the end of a step, once for each report."""

    def log(self, numbers: dict[str, float], step: int) -> bool:
        """False: the program has no run open."""
        raise NotImplementedError


class MlFlow(Target):
    def __init__(self) -> None:
        self._run = ""

    def at_step(self) -> None:
        mlflow = sys.modules.get("mlflow")
        run = mlflow.active_run() if mlflow is not None else None
        if run is not None:
            self._run = run.info.run_id

    def log(self, numbers: dict[str, float], step: int) -> bool:
        if not self._run:
            return False
        client = importlib.import_module("mlflow").MlflowClient()
        metric = importlib.import_module("mlflow.entities").Metric
        now = int(time.time() * 1000)
        metrics = [metric(name, value, now, step) for name, value in numbers.items()]
        client.log_batch(self._run, metrics=metrics)
        return True


class Wandb(Target):
    """Numbers join the row that the program's next `log` writes, so its own steps stay as they
    are."""

    def __init__(self) -> None:
        self._defined: Any = None

    def log(self, numbers: dict[str, float], step: int) -> bool:
        wandb = sys.modules.get("wandb")
        run = wandb.run if wandb is not None else None
        if run is None:
            return False
        if self._defined is not run:
            run.define_metric("paceline/step")
            run.define_metric("paceline/*", step_metric="paceline/step")
            self._defined = run
        run.log({**numbers, "paceline/step": step}, commit=False)
        return True


class TensorBoard(Target):
    """Writes an event file of its own, below the folder that TensorBoard shows."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder or os.path.join("runs", "paceline")  # noqa: PTH118
        self._writer: Any = None

    def log(self, numbers: dict[str, float], step: int) -> bool:
        if self._writer is None:
            self._writer = _summary_writer()(self._folder)
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()
        return True


def _summary_writer() -> Any:
    for name in ("torch.utils.tensorboard", "tensorboardX"):
        try:
            return importlib.import_module(name).SummaryWriter
        except ImportError:  # the next one
            continue
    raise ImportError("install tensorboard, or tensorboardX")


NAMES = ("mlflow", "tensorboard", "wandb")


def target_of(name: str, folder: str | None = None) -> Target:
    if name == "mlflow":
        return MlFlow()
    if name == "wandb":
        return Wandb()
    if name == "tensorboard":
        return TensorBoard(folder)
    raise ValueError(f"log_to {name!r}: must be one of {', '.join(NAMES)}")


def numbers_of(steps: list[Step]) -> dict[str, float]:
    """What is logged of these steps: means over them."""
    seconds = sum(step.wall for step in steps)
    if not steps or seconds <= 0:
        return {}
    numbers = {"paceline/step_seconds": seconds / len(steps)}
    rest = 1.0
    for index, phase in enumerate(PHASES):
        share = sum(step.phases[index] for step in steps) / seconds
        numbers[f"paceline/share/{phase}"] = share
        rest -= share
    numbers["paceline/share/other"] = max(0.0, rest)
    counted = [step for step in steps if step.samples is not None]
    if counted:
        samples = sum(step.samples or 0 for step in counted)
        numbers["paceline/samples_per_second"] = samples / sum(step.wall for step in counted)
    return numbers


def _effects() -> dict[str, float]:
    numbers = {}
    for effect in effects.found():
        numbers[f"paceline/kept/{effect['feature']}"] = float(effect["kept"])
        if "gain" in effect:
            numbers[f"paceline/gain/{effect['feature']}"] = effect["gain"]
    return numbers


class HandOver:
    """The thread of one target."""

    def __init__(self, name: str, target: Target, every: float) -> None:
        self._name = name
        self._target = target
        self._every = every
        self._asks = True  # the training thread is asked for `at_step`
        self._last = 0  # number of the last step that was logged
        self._failures = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"paceline-{name}", daemon=True)

    def start(self) -> None:
        marks.step_ended.append(self._at_step)
        marks.loop_ended.append(self._at_step)
        self._thread.start()
        # A daemon's last report: threads are stopped only after this.
        atexit.register(self.end)

    def end(self) -> None:
        self._ends.set()
        self._thread.join(_LAST_WORDS)

    def _at_step(self, _: Any = None) -> None:
        if self._asks:
            self._asks = False
            try:
                self._target.at_step()
            except Exception as error:  # training goes on
                say_once(f"log_to {self._name}: {type(error).__name__}: {error}")

    def _run(self) -> None:
        while not self._ends.wait(self._every):
            if not self._report():
                return
        self._report()

    def _report(self) -> bool:
        """False: the target is dropped."""
        try:
            steps = [step for step in trace.steps() if step.number > self._last]
            numbers = numbers_of(steps)
            if numbers and self._target.log({**numbers, **_effects()}, steps[-1].shown):
                self._last = steps[-1].number
            self._failures = 0
        except Exception as error:
            self._failures += 1
            if self._failures == _MOST_FAILURES or isinstance(error, ImportError):
                say(f"log_to {self._name} is off: {type(error).__name__}: {error}")
                return False
        self._asks = True
        return True


_begun: dict[str, HandOver] = {}


def log_to(name: str, folder: str | None = None, every: float = EVERY) -> None:
    """Begins once for each name, in rank 0."""
    target = target_of(name, folder)
    if not every >= 1:
        raise ValueError(f"log_to(every={every!r}): must be at least 1 second")
    if name not in _begun and os.environ.get("RANK", "0") == "0":
        _begun[name] = HandOver(name, target, every)
        _begun[name].start()


def install(names: str) -> None:
    """As the variable PACELINE_LOG_TO says, from the first training mark on."""
    when_open.append(lambda: _begin(names))


def _begin(names: str) -> None:
    for name in names.split(","):
        try:
            log_to(name.strip())
        except ValueError as error:
            say(f"PACELINE_LOG_TO is {names!r}: {error}")
