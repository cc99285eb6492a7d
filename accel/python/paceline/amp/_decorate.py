# SPDX-License-Identifier: Apache-2.0
"""paceline.amp.decorate: levels O1 and O2 of one model."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from paceline import optim
from paceline._core.log import say
from paceline.amp import _report
from paceline.amp._cast import cast
from paceline.optim._fused import MASTER, Fused

LEVELS = ("O1", "O2")
DTYPES = (torch.bfloat16, torch.float16)
_OURS: dict[type, type] = {
    torch.optim.Adam: optim.Adam,
    torch.optim.AdamW: optim.AdamW,
    torch.optim.SGD: optim.SGD,
}


def decorate(
    model: Any, optimizer: Any = None, level: str = "O1", dtype: torch.dtype = torch.bfloat16
) -> Any:
    """Makes a model compute in 16 bits, in place. Call it before you make a learning-rate schedule
    and before you wrap the model (DistributedDataParallel). The model's answers are float32.

    If the numerics class of the job does not allow it, the model and the optimizer stay as they
    are, and a line on standard error says so.

    Args:
        model: a `torch.nn.Module`.
        optimizer: for O2, PyTorch's Adam, AdamW or SGD, or an optimizer of paceline.optim. Those of
            PyTorch are exchanged for those of paceline.optim, with groups and state.
        level: "O1" runs the model under torch.autocast. "O2" also keeps its parameters and float32
            buffers in `dtype`, except those of batch normalization, with float32 masters in the
            optimizer.
        dtype: torch.bfloat16, or torch.float16 on a GPU.

    Returns:
        The model, the same object; with an optimizer the pair of both.

    Raises:
        TypeError: the model is no module, or O2 has no float32 masters for this optimizer.
        ValueError: another argument cannot be used. The text names it, and nothing has changed.

    Example:
        >>> model = torch.nn.Linear(4, 1)
        >>> optimizer = torch.optim.AdamW(model.parameters())
        >>> model, optimizer = paceline.amp.decorate(model, optimizer, level="O2")
        >>> model.weight.dtype, model(torch.ones(2, 4)).dtype
        (torch.bfloat16, torch.float32)
    """
    device = _check(model, optimizer, level, dtype)
    why = _report.why_not_allowed()
    if why:
        say(f"paceline.amp.decorate: the model is left as it is: {why}")
        _report.left[:] = [f"paceline.amp.decorate left a model as it is: {why}"]
        return model if optimizer is None else (model, optimizer)
    if level == "O2":
        optimizer = _optimizer_with_masters(optimizer)
        _to_sixteen_bits(model, optimizer, dtype)
    model.forward = _Forward(model, level, device, dtype)
    _report.decorated.append(
        f"{level} in {str(dtype)[6:]} for {type(model).__module__}.{type(model).__qualname__}"
    )
    del _report.decorated[:-8]
    return model if optimizer is None else (model, optimizer)


def _check(model: Any, optimizer: Any, level: str, dtype: torch.dtype) -> str:
    what = "paceline.amp.decorate: "
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"{what}model is {type(model).__qualname__}: it must be a torch.nn.Module")
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(
            f"{what}optimizer is {type(optimizer).__qualname__}: it must be a torch.optim.Optimizer"
            " or None"
        )
    if level not in LEVELS:
        raise ValueError(f"{what}level is {level!r}: it must be one of {', '.join(LEVELS)}")
    if dtype not in DTYPES:
        raise ValueError(f"{what}dtype is {dtype}: it must be torch.bfloat16 or torch.float16")
    if isinstance(model.__dict__.get("forward"), _Forward):
        raise ValueError(f"{what}the model is decorated already: call it once")
    device = next((parameter.device.type for parameter in model.parameters()), "cpu")
    if device == "cpu" and dtype is torch.float16:
        raise ValueError(
            f"{what}dtype is torch.float16 and the model is on the CPU: pass torch.bfloat16"
        )
    if level == "O2" and optimizer is not None:
        kind = type(optimizer)
        if not isinstance(optimizer, Fused) and kind not in _OURS:
            raise TypeError(
                f"{what}O2 needs an optimizer with float32 masters, and there is none for"
                f" {kind.__qualname__}: give torch.optim's Adam, AdamW or SGD, or one of"
                " paceline.optim, or pass level='O1'"
            )
        if isinstance(optimizer, Fused) and not optimizer.master_weights:
            raise ValueError(
                f"{what}the optimizer has master_weights=False, which O2 needs: leave it at True"
            )
        if "step" in optimizer.__dict__:
            raise ValueError(
                f"{what}a learning-rate schedule holds the optimizer already: decorate first, then"
                " make it"
            )
    return device


def _optimizer_with_masters(optimizer: Any) -> Any:
    if optimizer is None or isinstance(optimizer, Fused):
        return optimizer
    # How torch would run its own step does not concern ours.
    groups = [{**group, "foreach": None, "fused": None} for group in optimizer.param_groups]
    ours = _OURS[type(optimizer)](groups, lr=optimizer.param_groups[0]["lr"])
    if optimizer.state:
        ours.load_state_dict(optimizer.state_dict())
    return ours


def _to_sixteen_bits(model: Any, optimizer: Any, dtype: torch.dtype) -> None:
    trained = (
        {id(p): p for group in optimizer.param_groups for p in group["params"]}
        if optimizer is not None
        else {}
    )
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            continue  # running means and variances lose too much
        for parameter in module.parameters(recurse=False):
            if parameter.dtype is not torch.float32:
                continue
            if id(parameter) in trained:
                optimizer.state[parameter][MASTER] = parameter.detach().clone()
            grad, parameter.grad = parameter.grad, None
            parameter.data = parameter.data.to(dtype)
            parameter.grad = None if grad is None else grad.to(dtype)
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.dtype is torch.float32:
                module._buffers[name] = buffer.to(dtype)


class _Forward:
    """Replaces a model's forward. A class, so that the model can still be copied and saved."""

    def __init__(self, model: Any, level: str, device: str, dtype: torch.dtype) -> None:
        self.model, self.level, self.device, self.dtype = model, level, device, dtype
        self.inner = model.__dict__.get("forward")  # of a program that has put its own there

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self.level == "O2":
            args, options = (
                cast(args, torch.float32, self.dtype),
                cast(options, torch.float32, self.dtype),
            )
        with torch.autocast(self.device, dtype=self.dtype):
            if self.inner is not None:
                answer = self.inner(*args, **options)
            else:
                answer = type(self.model).forward(self.model, *args, **options)
        return cast(answer, self.dtype, torch.float32)
