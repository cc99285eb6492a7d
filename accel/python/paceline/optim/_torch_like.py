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
    """Returns the options that this version of PyTorch has. One that it does not have must be at
    its default, None or False.
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
    """`torch.optim.Adam`, whose step reads and writes each value once. Arguments, state and
    checkpoints are PyTorch's; moments are float32. Source: Kingma and Ba, arXiv:1412.6980.

    Args:
        params: the parameters or groups of them, as PyTorch takes them.
        lr: learning rate, a number or a tensor of one element.
        betas: how much of its past each of the two moments keeps in a step.
        eps: added to the root of the second moment.
        weight_decay: times the parameter, is added to the gradient.
        amsgrad: divides by the largest second moment so far.
        maximize: goes up the gradient.
        decoupled_weight_decay: decays as AdamW does; PyTorch 2.7 and later.
        foreach, fused: choose between PyTorch's own loops, where those run.
        capturable, differentiable: True leaves the group to PyTorch's own code on the CPU, and
            `differentiable` everywhere.
        max_grad_norm: scales the gradients down so that the L2 norm of all of them together, after
            unscaling, is at most this. None does not clip. `grad_norm` then holds the norm before
            clipping: a float, or on a GPU a tensor there.
        master_weights: keeps a float32 value behind each bfloat16 and float16 parameter
            (`state["master_param"]`), which is updated and then rounded.

    Raises:
        ValueError: an argument is out of range.
        TypeError: this PyTorch does not have an option that is set.
        RuntimeError: by `step`, if a gradient is sparse, or a 16-bit parameter is not the
            library's to update and has no master.

    Example:
        >>> model = torch.nn.Linear(4, 1)
        >>> optimizer = paceline.optim.Adam(model.parameters(), lr=1e-3)
        >>> model(torch.ones(8, 4)).sum().backward()
        >>> optimizer.step()
        >>> paceline.explain(as_dict=True)["fused optimizers"]["seen"][-1]["fused_tensors"]
        2
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
    """`torch.optim.AdamW`, whose step reads and writes each value once. Arguments, state and
    checkpoints are PyTorch's; moments are float32. Source: Loshchilov and Hutter, arXiv:1711.05101.

    Args:
        params: the parameters or groups of them, as PyTorch takes them.
        lr: learning rate, a number or a tensor of one element.
        betas: how much of its past each of the two moments keeps in a step.
        eps: added to the root of the second moment.
        weight_decay: a step multiplies the parameter by 1 - lr * weight_decay.
        amsgrad: divides by the largest second moment so far.
        maximize: goes up the gradient.
        foreach, fused: choose between PyTorch's own loops, where those run.
        capturable, differentiable: True leaves the group to PyTorch's own code on the CPU, and
            `differentiable` everywhere.
        max_grad_norm: scales the gradients down so that the L2 norm of all of them together, after
            unscaling, is at most this. None does not clip. `grad_norm` then holds the norm before
            clipping: a float, or on a GPU a tensor there.
        master_weights: keeps a float32 value behind each bfloat16 and float16 parameter
            (`state["master_param"]`), which is updated and then rounded.

    Raises:
        ValueError: an argument is out of range.
        TypeError: this PyTorch does not have an option that is set.
        RuntimeError: by `step`, if a gradient is sparse, or a 16-bit parameter is not the
            library's to update and has no master.

    Example:
        >>> model = torch.nn.Linear(4, 1)
        >>> optimizer = paceline.optim.AdamW(model.parameters(), max_grad_norm=1.0)
        >>> model(torch.ones(8, 4)).sum().backward()
        >>> optimizer.step()
        >>> paceline.explain(as_dict=True)["fused optimizers"]["seen"][-1]["fused_tensors"]
        2
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
    """`torch.optim.SGD`, whose step reads and writes each value once. Arguments, state and
    checkpoints are PyTorch's; momentum buffers are float32.

    Args:
        params: the parameters or groups of them, as PyTorch takes them.
        lr: learning rate, a number or a tensor of one element.
        momentum: how much of its past the buffer keeps in a step; 0 keeps no buffer.
        dampening: the gradient enters the buffer times 1 - dampening. Above 0 it leaves the group
            to PyTorch's own code on a GPU.
        weight_decay: times the parameter, is added to the gradient.
        nesterov: looks one step of the momentum ahead.
        maximize: goes up the gradient.
        foreach, fused: choose between PyTorch's own loops, where those run.
        differentiable: True leaves the group to PyTorch's own code.
        max_grad_norm: scales the gradients down so that the L2 norm of all of them together, after
            unscaling, is at most this. None does not clip. `grad_norm` then holds the norm before
            clipping: a float, or on a GPU a tensor there.
        master_weights: keeps a float32 value behind each bfloat16 and float16 parameter
            (`state["master_param"]`), which is updated and then rounded.

    Raises:
        ValueError: an argument is out of range.
        TypeError: this PyTorch does not have an option that is set.
        RuntimeError: by `step`, if a gradient is sparse, or a 16-bit parameter is not the
            library's to update and has no master.

    Example:
        >>> model = torch.nn.Linear(4, 1)
        >>> optimizer = paceline.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        >>> model(torch.ones(8, 4)).sum().backward()
        >>> optimizer.step()
        >>> paceline.explain(as_dict=True)["fused optimizers"]["seen"][-1]["fused_tensors"]
        2
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
