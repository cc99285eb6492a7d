# SPDX-License-Identifier: Apache-2.0
"""On the CPU the table of one step serves the next one too where every tensor is still what it was:
making it anew, row by row, is most of what a step of many small tensors costs. Where gradients
cannot be asked for in one call (_reader.py) it is made anew.
"""

from __future__ import annotations

import operator
from typing import Any

from paceline.optim import _reader, _sharded
from paceline.optim._kept import Kept, grad_of
from paceline.optim._native import GRAD_WORD, ROW_WORDS, Tensor
from paceline.optim._settings import Settings
from paceline.optim._unchanged import PLAIN

_LEFT_TO_TORCH = "capturable", "differentiable"  # options of groups


def at_once() -> bool:
    """Whether all tensors, gradients too, are asked in one call."""
    reader = _reader.reader()
    return reader is not None and reader.knows_gradients


class HostTable(Kept):
    """The table of one optimizer on the CPU, made row by row for a step."""

    def __init__(self, kind: Any) -> None:
        super().__init__(Settings(None, kind._add_group))

    def keep(self, optimizer: Any) -> HostTable | None:
        """Itself, ready for its step and for others; None where it cannot serve these."""
        if (
            not self.written
            or not at_once()
            or self._write_back
            or self.has_flags()  # of a first step: the next one's are others
            or len(self._groups) != len(optimizer.param_groups)
            or any(map(_sharded.is_one, self.written))
        ):
            return None
        self._address()
        self._first = self._keep  # held until its step is over
        try:
            self.settle(optimizer)
        except RuntimeError:  # PyTorch does not tell where one of them lies
            return None
        self._masters = optimizer.master_weights
        self._words = []  # they stand in the rows
        return self

    def stepped(self) -> None:
        self._first = []
        self.read_versions()

    def gradients(self, optimizer: Any) -> list[Tensor] | None:
        """Points the table to the present gradients, which the caller holds until the step is over,
        and to the groups as they are now; None where it does not serve this step.
        """
        if _reader.is_in_a_mode():
            return None
        grads = [*map(grad_of, self.written)]
        if not PLAIN.issuperset(map(type, grads)) or not self._gradients.find(
            self._tensors, self._pointers
        ):
            return None
        # Asked for again: had another thread exchanged one meanwhile, it would not be held.
        if not self.fits(optimizer) or not self._are_still(grads):
            return None
        self._rows[GRAD_WORD::ROW_WORDS] = self._pointers.now
        self._groups = self._settings.rows
        return grads

    def _are_still(self, grads: list[Tensor]) -> bool:
        return all(map(operator.is_, grads, map(grad_of, self.written)))

    def fits(self, optimizer: Any) -> bool:
        return (
            super().fits(optimizer)
            and self._masters == optimizer.master_weights
            and not any(
                group.get(name) for group in optimizer.param_groups for name in _LEFT_TO_TORCH
            )
        )
