# SPDX-License-Identifier: Apache-2.0
"""LAMB and LARS: each tensor's update is scaled by its norm (You et al., arXiv:1904.00962 and
arXiv:1708.03888). torch has neither, so what the library does not update is computed here by the
same formulas in torch's operations.
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
    """above / below, or 1 where one of the two norms is 0; without a wait for the device."""
    one = torch.ones_like(above)
    return torch.where((norm > 0) & (other > 0), above / below, one) if adapt else one


class LAMB(_Layerwise):
    """Adam's update (bias corrected, with decoupled weight decay) times the tensor's norm over the
    update's. A group with `adapt=False`, as is usual for biases and norms together with
    weight_decay=0, is updated as AdamW does.

    `max_grad_norm` clips by the norm of all gradients within the step; `master_weights` keeps
    float32 values behind 16-bit parameters.
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
    """SGD with momentum whose gradient, weight decay included, is scaled by trust_coefficient times
    the tensor's norm over the gradient's and the decay's. A group with `adapt=False`, as is usual
    for biases and norms together with weight_decay=0, is updated as SGD does.

    `max_grad_norm` clips by the norm of all gradients within the step; `master_weights` keeps
    float32 values behind 16-bit parameters.
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
