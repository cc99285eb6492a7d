# SPDX-License-Identifier: Apache-2.0
"""1-bit Adam (Tang et al., arXiv:2102.02888).

It is Adam for the first steps. Then the variance is frozen, and ranks send signs instead of values.
What the signs lose is added to the next step.

Signs of gradients would spoil Adam, because its variance would become that of the signs. With a
frozen variance the update is linear in the momentum, so a later step can bring what one step loses.

The paper sends signs of the momentum. Here they are signs of the update: momentum divided by the
root of the variance, which is the same on all ranks. Updates have about the same size everywhere,
so one mean for many signs fits them. Momentum does not: values of small variance would move too
far.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Callable

import torch

Tensor = torch.Tensor


class OneBitAdam(torch.optim.Optimizer):
    """AdamW whose variance stays constant after `freeze` steps.

    It compresses nothing by itself. `paceline.comm.OneBit(optimizer)` does, from that step on; then
    `.grad` holds updates before the learning rate, so do not clip it by norm. A value that had no
    gradient before the freeze does not move afterwards.

    Each parameter's state is that of torch.optim.Adam (step, exp_avg, exp_avg_sq) and
    `variance_steps`, the number of gradients in exp_avg_sq.

    Args:
        params: parameters or groups of them, as torch.optim.AdamW takes.
        lr: the learning rate, 0 or more.
        betas: the decay of momentum and variance, each from 0 to less than 1.
        eps: added to the root of the variance.
        weight_decay: the decay of parameters, multiplied by `lr`, 0 or more.
        freeze: after how many steps the variance is frozen, 2 or more.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> optimizer = paceline.comm.OneBitAdam([weight], lr=0.1, freeze=2)
        >>> for _ in range(2):
        ...     weight.grad = torch.ones(2)
        ...     optimizer.step()
        >>> weight, optimizer.is_frozen()
        (Parameter containing:
        tensor([0.8000, 0.8000], requires_grad=True), True)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        freeze: int = 100,
    ) -> None:
        for name, value, good, wanted in (
            ("lr", lr, lr >= 0, "0 or more"),
            (
                "betas",
                betas,
                all(0 <= beta < 1 for beta in betas),
                "two numbers from 0 to less than 1",
            ),
            ("eps", eps, eps >= 0, "0 or more"),
            ("weight_decay", weight_decay, weight_decay >= 0, "0 or more"),
            ("freeze", freeze, freeze >= 2, "2 or more"),
        ):
            if not good:
                raise ValueError(
                    f"paceline.comm.OneBitAdam: {name} is {value}: it must be {wanted}"
                )
        super().__init__(
            params,
            {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "freeze": freeze},
        )
        self.sums_are_updates = False  # whether `.grad` holds updates at the next step

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for kept in (
                self.state[parameter] for parameter in group["params"] if parameter in self.state
            ):
                # Checkpoints of earlier versions lack it. Assume a gradient in every step.
                kept.setdefault("variance_steps", int(min(float(kept["step"]), group["freeze"])))

    def is_frozen(self) -> bool:
        """Tells whether the next step leaves the variance unchanged. All ranks get the same
        answer.
        """
        freeze = self.param_groups[0]["freeze"]
        return any(float(state["step"]) >= freeze for state in self.state.values())

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates all parameters that have a gradient, as torch.optim.AdamW does.

        Args:
            closure: computes the loss and the gradients again, if given.

        Returns:
            The loss of `closure`, or None.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        frozen = self.is_frozen()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group, frozen)
        return loss

    @staticmethod
    def scale_of(state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        """Returns what the momentum is divided by: the root of the bias-corrected variance, plus
        eps. It has the parameter's shape.
        """
        seen = 1 - group["betas"][1] ** max(state["variance_steps"], 1)
        return (state["exp_avg_sq"] / seen).sqrt_().add_(group["eps"])

    def _update(self, parameter: Tensor, group: dict[str, Any], frozen: bool) -> None:
        state, grad, (beta1, beta2) = self.state[parameter], parameter.grad, group["betas"]
        if not state:
            state.update(
                step=torch.tensor(0.0, device="cpu"),
                exp_avg=torch.zeros_like(grad),
                exp_avg_sq=torch.zeros_like(grad),
            )
            state["variance_steps"] = 0
        state["step"] += 1
        momentum, variance, steps = state["exp_avg"], state["exp_avg_sq"], float(state["step"])
        if not frozen:
            variance.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            state["variance_steps"] += 1
        scale = self.scale_of(state, group)
        if frozen and self.sums_are_updates:
            update = grad
            torch.mul(update, scale, out=momentum)
        else:
            momentum.lerp_(grad, 1 - beta1)
            update = momentum / scale
            if frozen:
                update.masked_fill_(variance == 0, 0.0)
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.sub_(update, alpha=group["lr"] / (1 - beta1**steps))


@dataclass(frozen=True)
class FrozenAdam:
    """The compression that `OneBit(optimizer)` makes for a OneBitAdam. _compression uses it."""

    start: int
    freeze: int
    beta: float
    optimizer: Any = field(compare=False, repr=False)  # a weak reference

    def __str__(self) -> str:
        return f"OneBitAdam:freeze={self.freeze},beta={self.beta:g},start={self.start}"

    @staticmethod
    def of(optimizer: OneBitAdam, start: int) -> FrozenAdam:
        groups = optimizer.param_groups
        beta, freeze = groups[0]["betas"][0], groups[0]["freeze"]
        if any(group["betas"][0] != beta or group["freeze"] != freeze for group in groups):
            raise ValueError(
                "paceline.comm.OneBit: optimizer has groups of several betas or freeze: all must"
                " have the same"
            )
        return FrozenAdam(start, freeze, beta, weakref.ref(optimizer))

    def is_frozen(self) -> bool:
        optimizer = self.optimizer()
        return optimizer is not None and optimizer.is_frozen()

    def gather(self, bucket: Any, share: float) -> None:
        """Replaces the gradients in a bucket by updates. They contain this rank's gradients, and
        `share` of the momentum that all ranks have.
        """
        self._gather(bucket.parameters(), bucket.gradients(), share)

    def after(self, wait: Callable[[], Any], bucket: Any) -> Callable[[], Any]:
        """Returns a wait that replaces gradients by updates after the sum. It is for a bucket that
        is sent uncompressed.
        """
        parameters, gradients = bucket.parameters(), bucket.gradients()

        def waited() -> None:
            wait()
            self._gather(parameters, gradients, 1.0)

        return waited

    def _gather(self, parameters: list[Tensor], gradients: list[Tensor], share: float) -> None:
        optimizer = self.optimizer()
        groups = {
            parameter: group for group in optimizer.param_groups for parameter in group["params"]
        }
        for parameter, view in zip(parameters, gradients):
            if parameter not in groups:
                raise RuntimeError(
                    "paceline.comm.OneBit: the model has a parameter that is none of the"
                    " optimizer's: give it all of them"
                )
            state, group = optimizer.state[parameter], groups[parameter]
            if not state:  # never had a gradient
                view.zero_()
                continue
            view.mul_(1 - self.beta).add_(state["exp_avg"], alpha=self.beta * share)
            view.div_(optimizer.scale_of(state, group)).masked_fill_(state["exp_avg_sq"] == 0, 0.0)
        optimizer.sums_are_updates = True
