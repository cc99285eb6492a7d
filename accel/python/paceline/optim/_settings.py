# SPDX-License-Identifier: Apache-2.0
"""The settings of an optimizer's groups, as the library reads them. They are made anew if the
program has changed a group. Beside parameters and learning rates a group holds values that cannot
change in place, so another value is another object. Learning rates are read before every step,
since schedules change them.
"""

from __future__ import annotations

import array
import ctypes
import operator
from typing import Any, Callable

import torch

from paceline.optim._native import AMSGRAD, Group, Table, Tensor

# A plan does not hold its optimizer, since they would keep each other alive. So the optimizer is an
# argument.
AddGroup = Callable[[Any, Table, dict[str, Any]], None]

_FIXED = (bool, int, float, str, type(None))


def _is_fixed(value: Any) -> bool:
    """Whether the value cannot be changed in place."""
    return type(value) in _FIXED or (type(value) is tuple and all(map(_is_fixed, value)))


class _Known:
    """A group as it was when it was read."""

    def __init__(self, group: dict[str, Any]) -> None:
        names = [name for name in group if name != "lr"]
        self._size = len(group)
        # "params" twice: of at least two names the getter returns a tuple.
        self._values_of = operator.itemgetter("params", *names)
        self._values = self._values_of(group)  # held, so that no new object gets an old id
        fixed = all(_is_fixed(group[name]) for name in names if name != "params")
        self._is_fixed = fixed and type(group["lr"]) is float

    def is_same(self, group: dict[str, Any]) -> bool:
        """Whether nothing but the learning rate has changed, and that is a plain number still."""
        return (
            self._is_fixed
            and type(group["lr"]) is float
            and len(group) == self._size
            and all(map(operator.is_, self._values_of(group), self._values))
        )


class Settings:
    """The groups of one optimizer. `device`: where kernels read learning rates that are tensors
    there; None if all rates are numbers.
    """

    def __init__(self, device: torch.device | None, add_group: AddGroup) -> None:
        self._device = device
        self._add_group_of = add_group
        self._known: list[_Known] = []
        self._rows: Any = ()
        self._on_device: list[Tensor] = []  # learning rates that the kernels read there
        self._rates = array.array("Q")
        # For each group, when it was read: the settings that decide which state parameters have.
        self.states: list[tuple[int, bool, bool]] = []
        # The addresses of the groups (paceline_optim_group), and of the list of addresses of their
        # learning rates on the device; 0 if no rate is there.
        self.where = (0, 0)

    def add(self, optimizer: Any, table: Table, group: dict[str, Any]) -> None:
        self._add_group_of(
            optimizer, table, {**group, "lr": 0.0} if self._is_here(group["lr"]) else group
        )

    def _is_here(self, rate: Any) -> bool:
        return isinstance(rate, Tensor) and rate.device == self._device

    def read(self, optimizer: Any) -> None:
        """Reads the groups. Addresses that were given out before are not valid any more."""
        groups = optimizer.param_groups
        try:
            same = len(groups) == len(self._known) and all(map(_Known.is_same, self._known, groups))
        except KeyError:
            same = False
        if same:
            for row, group in zip(self._rows, groups):
                row.lr = group["lr"]
        else:
            self._make(optimizer)

    @property
    def rows(self) -> list[Group]:
        """Returns the groups as they were when they were read."""
        return [*self._rows]

    def _make(self, optimizer: Any) -> None:
        table = Table()
        self._on_device = []
        self._rates = array.array("Q")
        for group in optimizer.param_groups:
            rate = group["lr"]
            if self._is_here(rate):
                self._on_device.append(rate.to(torch.float32))
            self._rates.append(self._on_device[-1].data_ptr() if self._is_here(rate) else 0)
            self.add(optimizer, table, group)
        self._rows = (Group * len(table._groups))(*table._groups)
        self._known = [*map(_Known, optimizer.param_groups)]
        self.states = [
            (row.kind, row.momentum != 0, bool(row.flags & AMSGRAD)) for row in self._rows
        ]
        self.where = (
            ctypes.addressof(self._rows),
            (self._rates.buffer_info()[0] if self._on_device else 0),
        )
