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
            saves = getattr(args.save_strategy, "value", args.save_strategy) != "no"
            if saves and not saving.by_program and saving.requested(state.global_step):
                control.should_save = True
                control.should_evaluate = False  # there may not be time for both
        except Exception as error:  # training goes on
            say(f"the Trainer is not asked to save: {type(error).__name__}: {error}")
        return control

    handler.on_step_end = on_step_end
    around(handler, "on_save", after=forgetting(saving.saved))
