# SPDX-License-Identifier: Apache-2.0
"""The table of an optimizer on the CPU, which serves the next steps too while every tensor is what
it was (_cache.py).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from paceline.optim import _sharded
from paceline.optim._cache import CachedTable
from paceline.optim._native import GRAD_WORD, ROW_WORDS, Tensor
from paceline.optim._settings import Settings

_LEFT_TO_TORCH = "capturable", "differentiable"  # options of groups


class HostTable(CachedTable):
    """Made row by row for one step."""

    def __init__(self, kind: Any) -> None:
        super().__init__(Settings(None, kind._add_group))

    def cached(self, optimizer: Any) -> HostTable | None:
        """Itself, ready for its step and for later ones; None if it cannot serve later steps."""
        if (
            not self.written
            or self._write_back
            or self.has_flags()  # those of a first step, which later steps do not have
            or len(self._groups) != len(optimizer.param_groups)
            or any(map(_sharded.is_one, self.written))
        ):
            return None
        self._address()
        self._first = self._keep  # held until its step is over
        try:
            self.remember(optimizer)
        except RuntimeError:
            return None  # a tensor without memory or version
        self._masters = optimizer.master_weights
        self._words = []  # they stand in the rows
        return self

    def stepped(self) -> None:
        self._first = []
        self.read_versions()

    def gradients(self, optimizer: Any) -> Collection[Tensor] | None:
        """Points the table to the present gradients and groups. Answers the gradients, which the
        caller holds until the step is over; None if the table does not serve this step.
        """
        grads = self.gradients_now()
        if not self._gradients.set_addresses(grads, self._pointers) or not self.fits(optimizer):
            return None
        self._rows[GRAD_WORD::ROW_WORDS] = self._pointers
        self._groups = self._settings.rows
        return grads

    def fits(self, optimizer: Any) -> bool:
        return (
            super().fits(optimizer)
            and self._masters == optimizer.master_weights
            and not any(
                group.get(name) for group in optimizer.param_groups for name in _LEFT_TO_TORCH
            )
        )
