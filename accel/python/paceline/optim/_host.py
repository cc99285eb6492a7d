# SPDX-License-Identifier: Apache-2.0
"""The table of an optimizer on the CPU. It serves the next steps too while no tensor changes
(_cache.py).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from paceline.optim import _sharded
from paceline.optim._cache import CachedTable
from paceline.optim._native import GRAD_WORD, ROW_WORDS, Tensor
from paceline.optim._settings import AddGroup, Settings

_LEFT_TO_TORCH = "capturable", "differentiable"  # options of groups


def is_due(tables: int) -> bool:
    """Whether it is tried to keep a table, after so many that served one step only. It is tried at
    steps 1, 2, 4, 8 and so on.
    """
    return (tables + 1) & tables == 0


class HostTable(CachedTable):
    """A table that is made row by row for one step, and may serve later ones."""

    def __init__(self, add_group: AddGroup) -> None:
        super().__init__(Settings(None, add_group))

    def can_serve(self, optimizer: Any) -> bool:
        """Gets ready for this step and later ones. Returns whether it can serve those."""
        if (
            not self.written
            or self._write_back
            or self.is_first()  # a first step is another than later ones
            or len(self._groups) != len(optimizer.param_groups)
        ):
            return False
        self._address()
        self._first = self._keep  # held until its step is over
        try:
            self.remember(optimizer)
        except RuntimeError:
            return False  # a tensor without memory or version
        self._words = []  # the rows have them
        return True

    def stepped(self) -> None:
        self._first = []
        self.read_versions()

    def gradients(self, optimizer: Any) -> Collection[Tensor] | None:
        """Points the table to the gradients and groups as they are now. Returns the gradients,
        which the caller holds until the step is over; None if the table does not serve this step.
        """
        grads = self.gradients_now()
        if self.lie_apart(grads):
            return None
        grads = self._parts(grads)
        if not self._gradients.set_addresses(grads, self._pointers) or not self.fits(optimizer):
            return None
        self._rows[GRAD_WORD::ROW_WORDS] = self._pointers
        self._groups = self._settings.rows
        return grads

    def fits(self, optimizer: Any) -> bool:
        return super().fits(optimizer) and not any(
            group.get(name) for group in optimizer.param_groups for name in _LEFT_TO_TORCH
        )


class OwnTable(HostTable):
    """The table of an optimizer of paceline.optim, with the masters of 16-bit parameters."""

    def __init__(self, kind: Any) -> None:
        super().__init__(kind._add_group)

    def cached(self, optimizer: Any) -> OwnTable | None:
        """Returns itself, ready for this step and later ones, or None if it cannot serve those."""
        if any(map(_sharded.is_one, self.written)) or not self.can_serve(optimizer):
            return None
        self._masters = optimizer.master_weights
        return self

    def fits(self, optimizer: Any) -> bool:
        return super().fits(optimizer) and self._masters == optimizer.master_weights
