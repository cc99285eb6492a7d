# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own Adam, AdamW and SGD as the library sees them. It says which of their parameters the
library can update. It makes the state that their own step would make, under the same keys. So
checkpoints stay PyTorch's, and its own step can go on at any time.
"""

from __future__ import annotations

from typing import Any

import torch

from paceline.optim import _native, _sharded
from paceline.optim._native import Table, Tensor
from paceline.optim._torch_like import adam_group, sgd_group

_KEEPS_AN_EMPTY_BUFFER = tuple(map(int, torch.__version__.split(".")[:2])) < (
    2,
    4,
)  # SGD without momentum

# A parameter and its first momentum buffer, for keep(). On the CPU the state gets it when the step
# is made: for PyTorch's step, too, a buffer that exists is not the first one.
Made = tuple[Tensor, Tensor]


def is_adam(optimizer: Any) -> bool:
    return isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW))


def why_not_group(group: dict[str, Any]) -> str:
    """Returns why an option of the group asks for PyTorch's own code, or an empty text."""
    if group.get("differentiable"):
        return "differentiable=True"
    rate = group["lr"]
    if isinstance(rate, Tensor) and (rate.numel() != 1 or _sharded.is_one(rate)):
        return "lr is a tensor of several values"
    settings = group["weight_decay"], *group.get("betas", ())
    if any(isinstance(value, Tensor) for value in settings):
        return "weight_decay or betas are tensors"
    return ""


def why_not_scaled(optimizer: Any) -> str:
    """Returns why a step that a gradient scaler has asked for is PyTorch's, or an empty text."""
    for name in ("grad_scale", "found_inf"):  # a scaler sets them for steps with fused=True
        if getattr(optimizer, name, None) is not None:
            return "PyTorch's fused step also unscales the gradients, for a gradient scaler"
    return ""


def counts_on_device(group: dict[str, Any]) -> bool:
    """Whether PyTorch's step keeps its counts beside the parameters, and not on the host."""
    return bool(group.get("fused") or group.get("capturable"))


def why_not(optimizer: Any, group: dict[str, Any], parameter: Tensor, device_type: str) -> str:
    """Returns why PyTorch has to update this parameter, or an empty text if the library can do it
    on a device of this type.
    """
    grad = parameter.grad
    why = why_not_group(group)
    if why:
        return why
    if grad.layout is not torch.strided:
        return f"gradients of layout {grad.layout}"
    why = _native.why_not(parameter, grad, device_type)
    if why:
        return why
    if not _native.is_dense(_sharded.local(parameter.detach())):
        return "a parameter with gaps in its memory"
    state = optimizer.state.get(parameter)
    if not state:
        return (
            ""
            if torch.get_default_dtype() is torch.float32
            else "torch's default dtype is not float32"
        )
    return _why_not_state(optimizer, group, parameter, state)


def _why_not_state(
    optimizer: Any, group: dict[str, Any], parameter: Tensor, state: dict[str, Any]
) -> str:
    if is_adam(optimizer):
        step = state.get("step")
        if (
            not isinstance(step, Tensor)
            or step.dtype is not torch.float32
            or step.device != (parameter.device if counts_on_device(group) else torch.device("cpu"))
        ):
            return "a step count that is no float32 tensor, or is elsewhere than PyTorch's"
        names = ["exp_avg", "exp_avg_sq"] + (["max_exp_avg_sq"] if group["amsgrad"] else [])
    else:
        names = (
            ["momentum_buffer"]
            if group["momentum"] and state.get("momentum_buffer") is not None
            else []
        )
    for name in names:
        value = state.get(name)
        if (
            not isinstance(value, Tensor)
            or value.dtype is not parameter.dtype
            or not _lies_as(parameter, value)
        ):
            return f"{name} is not of the type and layout of its parameter"
    return ""


def _lies_as(parameter: Tensor, value: Tensor) -> bool:
    if _sharded.is_one(parameter) and _sharded.why_apart(parameter, value):
        return False
    here, other = _sharded.local(parameter.detach()), _sharded.local(value)
    return other.device == here.device and _native.alike(here, other)


def add_group(optimizer: Any, table: Table, group: dict[str, Any]) -> None:
    if is_adam(optimizer):
        adam_group(
            table,
            group,
            group.get("decoupled_weight_decay", isinstance(optimizer, torch.optim.AdamW)),
        )
    else:
        sgd_group(table, group)


def _zeros(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter, memory_format=torch.preserve_format)


def add(
    optimizer: Any,
    table: Table,
    group: dict[str, Any],
    parameter: Tensor,
    made: list[Made],
    step: Tensor | None = None,
) -> None:
    """Adds a row to the table, with the state that PyTorch's step would make. `step`: a counter to
    use in the place of Adam's own.
    """
    base = table.base_of(parameter)
    flags = 0
    values: list[Any] = [None, None, None]
    if is_adam(optimizer):
        state = optimizer.state[parameter]
        if not state:
            # Not on the default device, as PyTorch's.
            where = parameter.device if counts_on_device(group) else "cpu"
            state["step"] = torch.zeros((), dtype=torch.float32, device=where)
            state["exp_avg"] = _zeros(parameter)
            state["exp_avg_sq"] = _zeros(parameter)
            if group["amsgrad"]:
                state["max_exp_avg_sq"] = _zeros(parameter)
        values = [
            state["exp_avg"],
            state["exp_avg_sq"],
            state["max_exp_avg_sq"] if group["amsgrad"] else None,
        ]
        step = state["step"] if step is None else step
    elif group["momentum"]:
        buffer = optimizer.state[parameter].get("momentum_buffer")
        if buffer is None:
            flags, buffer = _native.FIRST, _zeros(parameter)
            made.append((parameter, buffer))
        values[0] = buffer
    elif _KEEPS_AN_EMPTY_BUFFER:
        optimizer.state[parameter].setdefault("momentum_buffer", None)
    if parameter.dtype is not torch.float32:
        flags |= _native.STATE_AS_PARAM
    first, second, third = (None if value is None else _sharded.local(value) for value in values)
    table.add(parameter, base, parameter.grad, (first, second, third), step=step, flags=flags)


def keep(optimizer: Any, made: list[Made]) -> None:
    for parameter, buffer in made:
        optimizer.state[parameter]["momentum_buffer"] = buffer
