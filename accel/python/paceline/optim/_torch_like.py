# SPDX-License-Identifier: Apache-2.0
"""torch.optim's Adam, AdamW and SGD with the update in libpaceline.so. Subclasses of torch's: the
same arguments, state keys and checks, and torch's own step for what the library does not update.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch

from paceline.optim import _native
from paceline.optim._fused import Fused
from paceline.optim._native import Table, Tensor


def options_of(kind: Any, **options: Any) -> dict[str, Any]:
    """The options that this version of torch knows; one that it does not know must be at its
    default, None or False.
    """
    known = inspect.signature(kind.__init__).parameters
    unknown = [name for name, value in options.items() if name not in known and value]
    if unknown:
        raise TypeError(
            f"{', '.join(unknown)}: PyTorch {torch.__version__} has no such option of"
            f" {kind.__name__}"
        )
    return {name: value for name, value in options.items() if name in known and value is not None}


def adam_group(table: Table, group: dict[str, Any], decoupled: bool) -> None:
    flags = (
        (_native.DECOUPLED if decoupled else 0)
        | (_native.AMSGRAD if group["amsgrad"] else 0)
        | (_native.MAXIMIZE if group["maximize"] else 0)
    )
    beta1, beta2 = group["betas"]
    table.add_group(
        _native.ADAM,
        flags,
        lr=float(group["lr"]),
        beta1=float(beta1),
        beta2=float(beta2),
        eps=float(group["eps"]),
        weight_decay=float(group["weight_decay"]),
    )


def sgd_group(table: Table, group: dict[str, Any]) -> None:
    flags = (_native.NESTEROV if group["nesterov"] else 0) | (
        _native.MAXIMIZE if group["maximize"] else 0
    )
    table.add_group(
        _native.SGD,
        flags,
        lr=float(group["lr"]),
        weight_decay=float(group["weight_decay"]),
        momentum=float(group["momentum"]),
        dampening=float(group["dampening"]),
    )


class _AdamLike(Fused):
    def _add_group(self, table: Table, group: dict[str, Any]) -> None:
        adam_group(
            table, group, group.get("decoupled_weight_decay", isinstance(self, torch.optim.AdamW))
        )

    def _add(self, table: Table, group: dict[str, Any], parameter: Tensor) -> None:
        state = self.state[parameter]
        base = table.base_of(parameter)
        third = (
            self._float_state(state, "max_exp_avg_sq", parameter, base)
            if group["amsgrad"]
            else None
        )
        states = (
            self._float_state(state, "exp_avg", parameter, base),
            self._float_state(state, "exp_avg_sq", parameter, base),
            third,
        )
        table.add(
            parameter,
            base,
            parameter.grad,
            states,
            self._master(parameter, base, state),
            self._count(state, base),
        )


class Adam(_AdamLike, torch.optim.Adam):
    """torch.optim.Adam. `max_grad_norm` clips by the norm of all gradients within the step;
    `master_weights` keeps float32 values behind 16-bit parameters. `foreach` and `fused` speak of
    torch's own code only.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
        max_grad_norm: float | None = None,
        master_weights: bool = True,
    ) -> None:
        self._set_up(max_grad_norm, master_weights)
        options = options_of(
            torch.optim.Adam,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            decoupled_weight_decay=decoupled_weight_decay,
        )
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **options)


class AdamW(_AdamLike, torch.optim.AdamW):
    """torch.optim.AdamW. `max_grad_norm` clips by the norm of all gradients within the step;
    `master_weights` keeps float32 values behind 16-bit parameters. `foreach` and `fused` speak of
    torch's own code only.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        max_grad_norm: float | None = None,
        master_weights: bool = True,
    ) -> None:
        self._set_up(max_grad_norm, master_weights)
        options = options_of(
            torch.optim.AdamW,
            maximize=maximize,
            foreach=foreach,
            capturable=capturable,
            differentiable=differentiable,
        )
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **options)


class SGD(Fused, torch.optim.SGD):
    """torch.optim.SGD. `max_grad_norm` clips by the norm of all gradients within the step;
    `master_weights` keeps float32 values behind 16-bit parameters. `foreach` and `fused` speak of
    torch's own code only.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
        max_grad_norm: float | None = None,
        master_weights: bool = True,
    ) -> None:
        self._set_up(max_grad_norm, master_weights)
        options = options_of(
            torch.optim.SGD, maximize=maximize, foreach=foreach, differentiable=differentiable
        )
        super().__init__(params, lr, momentum, dampening, weight_decay, nesterov, **options)

    def _add_group(self, table: Table, group: dict[str, Any]) -> None:
        sgd_group(table, group)

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
