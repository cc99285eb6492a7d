# SPDX-License-Identifier: Apache-2.0
"""Has Lightning's Trainer save when a pod of the job is about to go, or may soon be lost.

The Trainer asks the entry points of a group for callbacks, and so comes here. One without a
ModelCheckpoint never saves, and is left alone. As with Hugging Face's Trainer, training goes on
after the save until SIGTERM comes.
"""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any

from paceline._core import contract
from paceline._core.environment import disabled, told
from paceline._core.log import say
from paceline._core.saving import saving

# `fit(ckpt_path="last")` finds what begins with "last". `last.ckpt` may be a link to another
# checkpoint, so it is not written.
_NAME = "last-paceline.ckpt"


def callbacks() -> list[Any]:
    """What the entry point of the package lightning returns."""
    return _callbacks("lightning.pytorch")


def pytorch_lightning_callbacks() -> list[Any]:
    """The same for the package pytorch_lightning."""
    return _callbacks("pytorch_lightning")


def _callbacks(package: str) -> list[Any]:
    if disabled() or not told(contract.SAVE_REQUEST):
        return []
    try:
        return [_make(package)]
    except Exception as error:  # training goes on
        say(f"Lightning's Trainer is not asked to save: {type(error).__name__}: {error}")
        return []


class _SaveWhenAsked:
    package: str
    _asked_at = 0

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        self._asked_at = trainer.global_step

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        folder = getattr(trainer.checkpoint_callback, "dirpath", None)
        step = trainer.global_step  # stays while gradients accumulate
        if not folder or trainer.fast_dev_run or step == self._asked_at or saving.by_program:
            return
        self._asked_at = step
        if saving.requested(step):
            path = os.path.join(folder, _NAME)  # noqa: PTH118 - may be a URL
            trainer.save_checkpoint(path, False)
            saving.saved()

    def on_train_end(self, *_: Any) -> None:
        # A program that asks by itself may have stopped the Trainer because of the save.
        if not saving.by_program:
            saving.finished()

    def __reduce__(self) -> tuple[Any, ...]:
        # Trainers that start their ranks themselves pickle their callbacks.
        return _make, (self.package,)


@functools.cache
def _class_of(package: str) -> type:
    callback = importlib.import_module(package).Callback
    return type("SaveWhenAsked", (_SaveWhenAsked, callback), {"package": package})


def _make(package: str) -> Any:
    return _class_of(package)()
