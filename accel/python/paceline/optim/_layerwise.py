# SPDX-License-Identifier: Apache-2.0
"""LAMB and LARS, which scale each tensor's update by norms. PyTorch has neither. So what the
library does not update is computed here, by the same formulas in PyTorch's operations.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from paceline.optim import _native
from paceline.optim._fused import Fused
from paceline.optim._native import Table, Tensor


def _check(name: str, value: Any, good: bool, wanted: str) -> None:
    if not good:
        raise ValueError(f"{name} is {value}: it must be {wanted}")


class _Layerwise(Fused, torch.optim.Optimizer):
    _of_elements = False

    def _torch_step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                grad = -parameter.grad if group["maximize"] else parameter.grad
                self._by_formula(group, parameter, grad, self.state[parameter])

    def _by_formula(
        self, group: dict[str, Any], parameter: Tensor, grad: Tensor, state: dict[str, Any]
    ) -> None:
        raise NotImplementedError


def _ratio(above: Tensor, below: Tensor, norm: Tensor, other: Tensor, adapt: bool) -> Tensor:
    """Returns above / below, or 1 if one of the two norms is 0. Does not wait for the device."""
    one = torch.ones_like(above)
    return torch.where((norm > 0) & (other > 0), above / below, one) if adapt else one


class LAMB(_Layerwise):
    """Adam for large batches: the update of a tensor is scaled by the norm of the tensor over the
    norm of the update. Moments are bias corrected, weight decay is decoupled, and state is float32.
    Source: You et al., arXiv:1904.00962.

    Args:
        params: the parameters or groups of them, as PyTorch takes them.
        lr: learning rate, at least 0.
        betas: how much of its past each of the two moments keeps in a step, each in [0, 1).
        eps: added to the root of the second moment.
        weight_decay: times the parameter, is added to the update before its norm is taken.
        adapt: False leaves out the norms, so that the group is updated as AdamW does. That is
            usual, with weight_decay=0, for biases and normalizations.
        maximize: goes up the gradient.
        max_grad_norm: scales the gradients down so that the L2 norm of all of them together, after
            unscaling, is at most this. None does not clip. `grad_norm` then holds the norm before
            clipping: a float, or on a GPU a tensor there.
        master_weights: keeps a float32 value behind each bfloat16 and float16 parameter
            (`state["master_param"]`), which is updated and then rounded.

    Raises:
        ValueError: an argument is out of range.
        RuntimeError: by `step`, if a gradient is sparse, or a 16-bit parameter is not the
            library's to update and has no master.

    Example:
        >>> model = torch.nn.Linear(4, 1)
        >>> optimizer = paceline.optim.LAMB(model.parameters(), lr=2e-3)
        >>> model(torch.ones(8, 4)).sum().backward()
        >>> optimizer.step()
        >>> paceline.explain(as_dict=True)["fused optimizers"]["seen"][-1]["fused_tensors"]
        2
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 1e-2,
        *,
        adapt: bool = True,
        maximize: bool = False,
        max_grad_norm: float | None = None,
        master_weights: bool = True,
    ) -> None:
        _check("lr", lr, lr >= 0, "at least 0")
        _check("betas[0]", betas[0], 0 <= betas[0] < 1, "in [0, 1)")
        _check("betas[1]", betas[1], 0 <= betas[1] < 1, "in [0, 1)")
        _check("eps", eps, eps >= 0, "at least 0")
        _check("weight_decay", weight_decay, weight_decay >= 0, "at least 0")
        self._set_up(max_grad_norm, master_weights)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "adapt": adapt,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def _add_group(self, table: Table, group: dict[str, Any]) -> None:
        flags = (_native.ADAPT if group["adapt"] else 0) | (
            _native.MAXIMIZE if group["maximize"] else 0
        )
        beta1, beta2 = group["betas"]
        table.add_group(
            _native.LAMB,
            flags,
            lr=float(group["lr"]),
            beta1=beta1,
            beta2=beta2,
            eps=group["eps"],
            weight_decay=group["weight_decay"],
        )

    def _add(self, table: Table, group: dict[str, Any], parameter: Tensor) -> None:
        state = self.state[parameter]
        base = table.base_of(parameter)
        states = (
            self._float_state(state, "exp_avg", parameter, base),
            self._float_state(state, "exp_avg_sq", parameter, base),
            None,
        )
        table.add(
            parameter,
            base,
            parameter.grad,
            states,
            self._master(parameter, base, state),
            self._count(state, base),
        )

    def _by_formula(
        self, group: dict[str, Any], parameter: Tensor, grad: Tensor, state: dict[str, Any]
    ) -> None:
        if "step" not in state:
            state["step"] = torch.tensor(0.0, device="cpu")
            state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        beta1, beta2 = group["betas"]
        state["step"] += 1
        count = float(state["step"])
        first = state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)
        second = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad.conj(), value=1 - beta2)
        denominator = (second / (1 - beta2**count)).sqrt_().add_(group["eps"])
        update = (
            (first / (1 - beta1**count))
            .div_(denominator)
            .add_(parameter, alpha=group["weight_decay"])
        )
        own, other = parameter.norm(), update.norm()
        parameter.sub_(update * (group["lr"] * _ratio(own, other, own, other, group["adapt"])))


class LARS(_Layerwise):
    """SGD for large batches: the gradient of a tensor, weight decay included, is scaled by
    `trust_coefficient * |p| / (|g| + weight_decay * |p| + eps)`, with the norms of tensor and
    gradient. Momentum buffers are float32. Source: You et al., arXiv:1708.03888.

    Args:
        params: the parameters or groups of them, as PyTorch takes them.
        lr: learning rate, at least 0.
        momentum: how much of its past the buffer keeps in a step; 0 keeps no buffer.
        weight_decay: times the parameter, is added to the gradient.
        nesterov: looks one step of the momentum ahead.
        trust_coefficient: above 0.
        eps: at least 0.
        adapt: False leaves out the norms, so that the group is updated as SGD does. That is usual,
            with weight_decay=0, for biases and normalizations.
        maximize: goes up the gradient.
        max_grad_norm: scales the gradients down so that the L2 norm of all of them together, after
            unscaling, is at most this. None does not clip. `grad_norm` then holds the norm before
            clipping: a float, or on a GPU a tensor there.
        master_weights: keeps a float32 value behind each bfloat16 and float16 parameter
            (`state["master_param"]`), which is updated and then rounded.

    Raises:
        ValueError: an argument is out of range.
        RuntimeError: by `step`, if a gradient is sparse, or a 16-bit parameter is not the
            library's to update and has no master.

    Example:
        >>> model = torch.nn.Linear(4, 1)
        >>> optimizer = paceline.optim.LARS(model.parameters(), lr=0.1)
        >>> model(torch.ones(8, 4)).sum().backward()
        >>> optimizer.step()
        >>> paceline.explain(as_dict=True)["fused optimizers"]["seen"][-1]["fused_tensors"]
        2
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        trust_coefficient: float = 0.001,
        eps: float = 1e-8,
        adapt: bool = True,
        maximize: bool = False,
        max_grad_norm: float | None = None,
        master_weights: bool = True,
    ) -> None:
        _check("lr", lr, lr >= 0, "at least 0")
        _check("momentum", momentum, momentum >= 0, "at least 0")
        _check("weight_decay", weight_decay, weight_decay >= 0, "at least 0")
        _check("trust_coefficient", trust_coefficient, trust_coefficient > 0, "above 0")
        _check("eps", eps, eps >= 0, "at least 0")
        _check("nesterov", nesterov, not nesterov or momentum > 0, "False without momentum")
        self._set_up(max_grad_norm, master_weights)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "trust_coefficient": trust_coefficient,
            "eps": eps,
            "adapt": adapt,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def _add_group(self, table: Table, group: dict[str, Any]) -> None:
        flags = (
            (_native.ADAPT if group["adapt"] else 0)
            | (_native.MAXIMIZE if group["maximize"] else 0)
            | (_native.NESTEROV if group["nesterov"] else 0)
        )
        table.add_group(
            _native.LARS,
            flags,
            lr=float(group["lr"]),
            momentum=group["momentum"],
            weight_decay=group["weight_decay"],
            trust_coefficient=group["trust_coefficient"],
            eps=group["eps"],
        )

    def _add(self, table: Table, group: dict[str, Any], parameter: Tensor) -> None:
        state = self.state[parameter]
        base = table.base_of(parameter)
        first = group["momentum"] and state.get("momentum_buffer") is None
        buffer = (
            self._float_state(state, "momentum_buffer", parameter, base)
            if group["momentum"]
            else None
        )
        master = self._master(parameter, base, state)
        flags = _native.FIRST if first else 0
        table.add(parameter, base, parameter.grad, (buffer, None, None), master, flags=flags)

    def _by_formula(
        self, group: dict[str, Any], parameter: Tensor, grad: Tensor, state: dict[str, Any]
    ) -> None:
        decay, momentum = group["weight_decay"], group["momentum"]
        own, other = parameter.norm(), grad.norm()
        above = group["trust_coefficient"] * own
        update = grad.add(parameter, alpha=decay)
        update = update * _ratio(
            above, other + decay * own + group["eps"], own, other, group["adapt"]
        )
        if momentum:
            buffer = state.get("momentum_buffer")
            if buffer is None:
                buffer = state["momentum_buffer"] = update.clone()
            else:
                buffer.mul_(momentum).add_(update)
            update = update.add(buffer, alpha=momentum) if group["nesterov"] else buffer
        parameter.sub_(group["lr"] * update)
