# SPDX-License-Identifier: Apache-2.0
"""1-bit Adam (Tang et al., arXiv:2102.02888): Adam at first; then its variance stays as it is, and
what ranks send of their momentum is signs, with what those lose kept for later.

Under Adam's moments signs of gradients are unsound: the variance would be that of the signs. With a
frozen one the update is linear in momentum, so what one step loses another brings. Other than in
the paper the signs are those of the updates, momentum over the root of the variance, which all
ranks have alike: these are about as large everywhere, so that a sign and a mean say much of them;
of momentum itself they move values of little variance by far too much.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Callable

import torch

Tensor = torch.Tensor


class OneBitAdam(torch.optim.Optimizer):
    """AdamW, whose variance stays what it is once `freeze` steps have been made. By itself it
    compresses nothing: `paceline.comm.OneBit(optimizer)` is the compression, from that step on.

    State of each parameter as torch.optim.Adam's: step, exp_avg, exp_avg_sq; and variance_steps,
    how many gradients are in exp_avg_sq. A value without any variance then, for it never had a
    gradient, does not move any more. Compressed, `.grad` is the update itself from then on, before
    the learning rate: it is no use to clip it by norm.
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
        self.sums_are_updates = False  # what `.grad` has at the next step

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for kept in (
                self.state[parameter] for parameter in group["params"] if parameter in self.state
            ):
                # Not in checkpoints of earlier versions: as of a parameter that was in every step.
                kept.setdefault("variance_steps", int(min(float(kept["step"]), group["freeze"])))

    def is_frozen(self) -> bool:
        """Whether the next step leaves the variance as it is: the same on all ranks."""
        freeze = self.param_groups[0]["freeze"]
        return any(float(state["step"]) >= freeze for state in self.state.values())

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
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
        """What momentum is divided by. Without any variance, eps."""
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
    """The compression of a OneBitAdam's gradients."""

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
        """Of gradients in a bucket's memory, updates: this rank's `share` of the momentum that all
        have, and its own gradients' part.
        """
        self._gather(bucket.parameters(), bucket.gradients(), share)

    def after(self, wait: Callable[[], Any], bucket: Any) -> Callable[[], Any]:
        """Of a bucket that goes as it is: updates once it is summed."""
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
