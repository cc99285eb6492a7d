# SPDX-License-Identifier: Apache-2.0
"""Marks the steps of frameworks other than PyTorch when they have been imported, and has a trainer
save when a pod goes. sitecustomize comes here then, and not before.
"""

from __future__ import annotations

from paceline._core import contract
from paceline._core.environment import disabled, told

# typing itself is not imported: that takes some milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def mark_keras(callbacks: ModuleType) -> None:
    if _wanted():
        from paceline._frameworks import keras

        keras.mark_fit(callbacks)


def mark_keras_model(module: ModuleType) -> None:
    if not disabled():
        from paceline._frameworks import keras

        keras.mark_saving(module)


def mark_paddle(module: ModuleType) -> None:
    if _wanted():
        from paceline._frameworks import paddle

        paddle.mark_loops(module)


def mark_xgboost(callback: ModuleType) -> None:
    if _wanted():
        from paceline._frameworks import xgboost

        xgboost.mark_rounds(callback)


def save_when_asked(callbacks: ModuleType) -> None:
    if not disabled() and told(contract.SAVE_REQUEST):
        from paceline._frameworks import transformers

        transformers.save_when_asked(callbacks)


def _wanted() -> bool:
    if disabled():
        return False
    if told(contract.LOG_TO):
        from paceline._core import hand_over

        hand_over.install(told(contract.LOG_TO))
    return True
