# SPDX-License-Identifier: Apache-2.0
"""Gives PyTorch's own DataLoader our iterator, in programs that do not know Paceline.

It is off unless the job sets PACELINE_LOADER=Auto. Samples, order and random state equal PyTorch's
bit for bit (class Bitwise), so every PACELINE_NUMERICS allows it.

`_get_iterator` of the class is replaced in place, so loaders, their types and subclasses stay
PyTorch's. A loader whose samples might differ gets PyTorch's own iterator.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from torch.utils.data import DataLoader

from paceline._core import contract
from paceline._core.log import say
from paceline._core.switches import why_off
from paceline.loader import _iterator, _report

ON = "on"
GIVEN = "on (for those given to paceline.accelerate or paceline.loader.accelerate)"
_undo: list[Callable[[], None]] = []


def wanted() -> str:
    """Returns an empty text if the job asks for this feature, else why it is off."""
    return why_off(contract.LOADER, "PyTorch's loaders are")


def install() -> None:
    _report.switch = wanted()
    if _report.switch:
        return
    why = _iterator.why_untested()
    if why:
        _report.switch = f"off ({why})"
        say(f"PyTorch's loaders are left as they are: {why}")
        return
    patch()
    _report.switch = ON


def patch() -> None:
    """Lets loaders get our iterator: all if the job asks, else those given to `accelerate`."""
    if _undo:
        return
    original = DataLoader._get_iterator

    @functools.wraps(original)
    def _get_iterator(self: Any) -> Any:
        wanted = _report.switch == ON or getattr(self, "_paceline_loader", False)
        ours = _iterator.iterator(self) if wanted else None
        # An iterator of no batches counts as false, so compare with None.
        return original(self) if ours is None else ours

    DataLoader._get_iterator = _get_iterator
    _undo.append(functools.partial(setattr, DataLoader, "_get_iterator", original))


def uninstall() -> None:
    """Puts PyTorch's original method back."""
    while _undo:
        _undo.pop()()
    _report.switch = "off (uninstalled)"
