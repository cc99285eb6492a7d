# SPDX-License-Identifier: Apache-2.0
"""The optimizers that tracing knows, for the parts of the package that act on each of them."""

from __future__ import annotations

import weakref
from typing import Any, Callable

# Tracing calls these with each optimizer that the program makes.
optimizer_made: list[Callable[[Any], None]] = []
# Tracing calls these with an optimizer whose step has ended.
step_ended: list[Callable[[Any], None]] = []
# paceline.step() and the callbacks of loops call these at the end of a step.
loop_ended: list[Callable[[], None]] = []


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

    def any(self) -> bool:
        """Whether an optimizer has stepped."""
        return bool(self._known)


optimizer_indices = _Indices()
