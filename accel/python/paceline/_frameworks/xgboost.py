# SPDX-License-Identifier: Apache-2.0
"""Boosting rounds of `xgboost.train`, which calls its list of callbacks after each."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from paceline._core import loops
from paceline._core.trace import explicit_step, trace
from paceline._frameworks._around import around


def _begin(*_: Any, **__: Any) -> None:
    if trace.lib is None:
        explicit_step(-1)


def _end(_: Any, model: Any, epoch: int, *__: Any, **___: Any) -> None:
    explicit_step(epoch)


def mark_rounds(callback: ModuleType) -> None:
    """For `xgboost.callback`."""
    around(callback.CallbackContainer, "before_training", after=_begin)
    around(callback.CallbackContainer, "after_iteration", after=_end)
    loops.marked.add("xgboost")
