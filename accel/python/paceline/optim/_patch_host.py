# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own optimizers on the CPU, in programs that do not know Paceline. A table serves step
after step while no tensor changes, as those of paceline.optim do (_host.py). The state is what
PyTorch's step would make, so either way may make the next step.
"""

from __future__ import annotations

from typing import Any

import torch

from paceline.optim import _torch_state
from paceline.optim._choice import choice
from paceline.optim._host import HostTable, is_due
from paceline.optim._native import Table, Tensor


class _Kept:
    """What an optimizer keeps between steps. A table of all optimizers would keep parameters alive,
    and their hooks may hold the optimizer.
    """

    def __init__(self) -> None:
        self.table: HostTable | None = None
        self.tables = 0  # that were made since one served another step

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied or saved as None: a table is made of addresses."""
        return type(None), ()


def step_again(table: Table, optimizer: Any) -> int:
    """Makes the step if no tensor has changed since the last one. Returns the number of tensors; 0
    if it did nothing, since a closer look is needed.
    """
    kept: _Kept | None = getattr(optimizer, "_paceline_kept", None)
    if kept is None or kept.table is None or any(map(_asks_for_torchs, optimizer.param_groups)):
        return 0
    # Removed while it serves: the step of another thread, or one after a failure, makes its own.
    cached, kept.table = kept.table, None
    grads = cached.gradients(optimizer)
    if grads is None:
        return 0
    _run(table, cached)
    cached.stepped()
    kept.table, kept.tables = cached, 0
    return len(cached)


def step(table: Table, optimizer: Any, found: list[tuple[dict[str, Any], Tensor]]) -> str:
    """Makes the step. Returns why it is left to PyTorch; empty if it was made. `found`: parameters
    that have a gradient, and their groups. If it raises, `table.done` tells whether something was
    updated.
    """
    is_torchs = not choice.ours and any(group.get("fused") for group, _ in found)
    if is_torchs and choice.is_able:
        return choice.why_torchs()
    why = next(
        filter(None, (_torch_state.why_not(optimizer, group, p, "cpu") for group, p in found)), ""
    )
    if any(group.get("capturable") for group, _ in found):
        why = why or "capturable=True on the CPU"
    if is_torchs and not why:
        choice.meets()
        why = choice.why_torchs()
    if why:
        return why
    rows = HostTable(_torch_state.add_group)
    made: list[_torch_state.Made] = []
    previous = None
    for group, parameter in found:
        if group is not previous:
            _torch_state.add_group(optimizer, rows, group)
            previous = group
        _torch_state.add(optimizer, rows, group, parameter, made)
    kept: _Kept | None = getattr(optimizer, "_paceline_kept", None)
    if kept is None:
        kept = optimizer._paceline_kept = _Kept()
    # It remembers what it points to before anything lets other threads run.
    serves = not made and is_due(kept.tables) and rows.can_serve(optimizer)
    _run(table, rows)
    _torch_state.keep(optimizer, made)
    kept.tables += 1
    if serves:
        rows.stepped()
        kept.table = rows
    return ""


def _run(table: Table, rows: HostTable) -> None:
    rows.done = False
    try:
        with torch.no_grad():
            rows.step()
    finally:
        table.done = rows.done


def _asks_for_torchs(group: dict[str, Any]) -> bool:
    return bool(
        _torch_state.why_not_group(group)
        or group.get("capturable")
        or (group.get("fused") and not choice.ours)
    )
