# SPDX-License-Identifier: Apache-2.0
"""Training marks that more than one part of the package sets: around steps of optimizers and waits
for communication.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any, Callable

from paceline._core import library as abi
from paceline._core.trace import trace

# Tracing calls these with each optimizer that the program makes.
optimizer_made: list[Callable[[Any], None]] = []


class _Indices:
    """Numbers optimizers in the order of their first step, without keeping them alive."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def of(self, optimizer: Any) -> int:
        try:
            index = self._known.get(optimizer)
            if index is None:
                taken = set(self._known.values())
                index = next(i for i in range(len(taken) + 1) if i not in taken)
                self._known[optimizer] = index
            return index
        except TypeError:  # an optimizer that cannot be hashed
            return 15


optimizer_indices = _Indices()


@contextlib.contextmanager
def one_step(optimizer: Any) -> Iterator[None]:
    """Around several calls of an optimizer's step that are one step of the training."""
    library = trace.lib
    if library is None:
        yield
        return
    index = optimizer_indices.of(optimizer)
    library.optimizer_enter(index)
    try:
        yield
    finally:
        library.optimizer_leave(index)


@contextlib.contextmanager
def exposed() -> Iterator[None]:
    """Around a wait for communication within a step."""
    library = trace.lib
    if library is None:
        yield
        return
    library.phase_enter(abi.COMM_EXPOSED)
    try:
        yield
    finally:
        library.phase_leave(abi.COMM_EXPOSED)
