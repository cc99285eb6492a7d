# SPDX-License-Identifier: Apache-2.0
"""Has Hugging Face's Trainer save when a pod of the job is about to go."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from paceline._core.log import say
from paceline._core.saving import saving
from paceline._frameworks._around import around, forgetting


def save_when_asked(callbacks: ModuleType) -> None:
    """For `transformers.trainer_callback`, whose CallbackHandler the Trainer calls after each step.

    A Trainer that never saves is left alone. The Trainer goes on after the save until SIGTERM
    comes: if it stopped, the program would go on as after a complete training.
    """
    handler = callbacks.CallbackHandler
    original = handler.on_step_end

    @functools.wraps(original)
    def on_step_end(self: Any, args: Any, state: Any, control: Any, **more: Any) -> Any:
        control = original(self, args, state, control, **more)
        try:
            strategy = getattr(args.save_strategy, "value", args.save_strategy)
            if strategy != "no" and not saving.by_program and saving.requested(state.global_step):
                control.should_save = True
                # There may not be time for both. With "best" an evaluation decides about the save.
                if not saving.go_on or strategy == "best":
                    control.should_evaluate = False
        except Exception as error:  # training goes on
            say(f"the Trainer is not asked to save: {type(error).__name__}: {error}")
        return control

    handler.on_step_end = on_step_end
    around(handler, "on_save", after=forgetting(saving.saved))
    around(handler, "on_train_end", after=forgetting(_finished))


def _finished() -> None:
    # A program that asks by itself may have stopped the Trainer because of the save.
    if not saving.by_program:
        saving.finished()
