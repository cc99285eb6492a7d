# SPDX-License-Identifier: Apache-2.0
"""A table that serves more than one step: of what an optimizer has it remembers enough to tell, in
few calls, whether every tensor is still the one that the table points to.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from paceline.optim import _native, _sharded
from paceline.optim._bulk import Members, Places, Seen, Versions
from paceline.optim._native import Table, Tensor
from paceline.optim._reader import Held
from paceline.optim._settings import Settings
from paceline.optim._unchanged import Gradients, Values

grad_of = operator.attrgetter("grad")


class Kept(Table):
    """Keeps parameters alive from settle() on, not the state. As in PyTorch's own steps no thread
    may exchange memory while one is under way.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings

    def settle(self, optimizer: Any) -> None:
        """All rows are there: what they point to is remembered as it is now."""
        self._values = Values(optimizer.state)
        self._settings.read(optimizer)
        self._states = self._settings.states
        self._parameters = [Members(group["params"]) for group in optimizer.param_groups]
        self.sharded = any(map(_sharded.is_one, self.written))
        parts = self._parts(self.written)
        self._tensors = Held(self.written)
        self._lay = Seen(Held(parts), themselves=not self.sharded)
        # Of 16-bit parameters: what the program writes into one counts, and its master is made
        # anew.
        self._halves = Versions(
            Held(parameter for parameter in self.written if parameter.dtype in _native.HALVES)
        )
        self._halves.read()
        self._others = self._without_gradient(optimizer)
        self._gradients = Gradients(self._keep[::2], parts)
        self._keep = []
        self._pointers = Places(len(self))

    def read_versions(self) -> None:
        """After a step: what is written from now on, the program has written."""
        self._halves.read()

    def fits(self, optimizer: Any) -> bool:
        """Whether every tensor is still the one that the table points to. Reads what the groups ask
        of the next step.
        """
        return (
            len(self._parameters) == len(optimizer.param_groups)
            and all(
                known.same(group["params"])
                for known, group in zip(self._parameters, optimizer.param_groups)
            )
            and self._values.same(optimizer.state)
            and self._ask_for_the_same(optimizer)
            and self._lay.same(Held(self._parts(self.written)) if self.sharded else self._tensors)
            and self._halves.same()
            and all(parameter.grad is None for parameter in self._others)
        )

    def _ask_for_the_same(self, optimizer: Any) -> bool:
        self._settings.read(optimizer)
        return self._states == self._settings.states

    def _parts(self, tensors: list[Any]) -> list[Any]:
        """What is here of each, None staying None."""
        if not self.sharded:
            return tensors
        with torch.no_grad():
            return [*map(_sharded.local, tensors)]

    def _without_gradient(self, optimizer: Any) -> list[Tensor]:
        """Parameters that are not in the table, since they had no gradient when it was made."""
        ours = {id(parameter) for parameter in self.written}
        return [p for group in optimizer.param_groups for p in group["params"] if id(p) not in ours]
