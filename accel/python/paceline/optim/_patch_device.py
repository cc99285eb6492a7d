# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own optimizers on a GPU, in programs that do not know Paceline. The table of _device.py
serves the state that PyTorch's step would make. With fused=True and capturable=True that state has
Adam's step counts in the device's memory, where the kernels count. Else they are in the host's
memory; then the kernels count in a tensor beside, and both counts go on together.
"""

from __future__ import annotations

import array
import ctypes
import functools
from typing import Any

import torch

from paceline.optim import _device, _torch_state
from paceline.optim._device import Asked, Plan, functions
from paceline.optim._native import Table, Tensor


class _Counting(Plan):
    """A plan that counts its steps in the host's memory too."""

    def __init__(
        self, optimizer: Any, device: torch.device, found: list[tuple[dict[str, Any], Tensor]]
    ) -> None:
        super().__init__(device, _torch_state.add_group)
        counts = (
            [float(optimizer.state[p].get("step", 0)) for _, p in found]
            if _torch_state.is_adam(optimizer) and not _torch_state.counts_on_device(found[0][0])
            else []
        )
        self._counts = (ctypes.c_float * len(counts))(*counts)
        self._counts_there = torch.tensor(counts, dtype=torch.float32, device=device)
        self.beside.append(self._counts_there)
        self._counters = iter(self._counts_there.unbind())

    def add_row(
        self, optimizer: Any, table: Table, group: dict[str, Any], parameter: Tensor
    ) -> None:
        made: list[_torch_state.Made] = []
        _torch_state.add(optimizer, table, group, parameter, made, next(self._counters, None))
        # Before the table is sealed, which remembers the state. If the launch is refused, the
        # buffer does no harm: without dampening a buffer of zeros equals none.
        _torch_state.keep(optimizer, made)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied or saved as None: a plan is made of addresses."""
        return type(None), ()

    def seal(self, optimizer: Any) -> None:
        super().seal(optimizer)
        counted = self.written if len(self._counts) else []
        self._steps = array.array(
            "Q", [optimizer.state[parameter]["step"].data_ptr() for parameter in counted]
        )

    def fits(self, optimizer: Any) -> bool:
        if not super().fits(optimizer):
            return False
        return (
            functions().counts_are(self._steps.buffer_info()[0], self._counts, len(self._steps))
            == 1
        )

    def count(self) -> None:
        """Counts a step of each parameter that had a gradient."""
        functions().count(
            self._steps.buffer_info()[0], self._counts, self.call.grads, len(self._steps)
        )


def step_again(table: Table, optimizer: Any) -> int:
    """Makes the step if no tensor has changed since the last one. Returns the number of tensors; 0
    if it did nothing, since a closer look is needed. Raises as `step` does.
    """
    plan: _Counting | None = getattr(optimizer, "_paceline_plan", None)
    if plan is None or _device.is_capturing() or any(map(_why_not_group, optimizer.param_groups)):
        return 0
    if not plan.fits(optimizer) or not plan.take_gradients() or not plan.all_given:
        return 0
    _launch(table, plan, optimizer)
    return len(plan)


def step(table: Table, optimizer: Any, found: list[tuple[dict[str, Any], Tensor]]) -> str:
    """Makes the step. Returns why it is left to PyTorch; empty if it was made. `found`: parameters
    that have a gradient, and their groups. If it raises, `table.done` tells whether something was
    updated.
    """
    if _device.is_capturing():
        return "a CUDA graph is being captured"
    why = next(filter(None, map(_why_not_group, optimizer.param_groups)), "")
    if why:
        return why
    # The optimizer itself keeps the plan. A table of all plans would keep parameters alive, and
    # their hooks may hold the optimizer.
    plan: _Counting | None = getattr(optimizer, "_paceline_plan", None)
    if plan is not None and plan.fits(optimizer) and plan.take_gradients():
        _launch(table, plan, optimizer)
        return ""
    optimizer._paceline_plan = plan = None
    device = found[0][1].device
    why = _device.why_unavailable(_device.index_of(device))
    why = why or next(
        filter(None, (_why_not(optimizer, group, p, device) for group, p in found)), ""
    )
    if not why and len({_torch_state.counts_on_device(group) for group, _ in found}) > 1:
        why = "fused=True or capturable=True in some groups only"
    if why:
        return why
    plan = _Counting(optimizer, device, found)
    _device.fill(plan, optimizer, functools.partial(plan.add_row, optimizer))
    plan.take_gradients()
    _launch(table, plan, optimizer)
    optimizer._paceline_plan = plan
    return ""


def _launch(table: Table, plan: _Counting, optimizer: Any) -> None:
    try:
        plan.step_with(Asked())
        plan.count()
    except BaseException:
        optimizer._paceline_plan = None  # its counts may be ahead of the host's
        raise
    finally:
        table.done = plan.done


def _why_not_group(group: dict[str, Any]) -> str:
    return _torch_state.why_not_group(group) or (
        "dampening on a GPU" if group.get("dampening") else ""
    )


def _why_not(optimizer: Any, group: dict[str, Any], parameter: Tensor, device: torch.device) -> str:
    if parameter.device != device:
        return "parameters on several devices"
    return _torch_state.why_not(optimizer, group, parameter, device.type)
