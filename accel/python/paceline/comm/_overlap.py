# SPDX-License-Identifier: Apache-2.0
"""Updates while sums are on their way, for the engine: the step of an optimizer goes bucket by
bucket, each as its sum comes.

Between backward and that step a gradient is an `Awaited`: a tensor in the place of the sum, which
whatever PyTorch does with it waits for. So clipping, loss scalers and prints see sums, and the step
finds nothing left to wait for then.
"""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any, Callable

import torch
from torch.optim import optimizer as torch_optimizer

from paceline._core.marks import exposed, one_step
from paceline._core.untraced import untraced

if TYPE_CHECKING:
    from paceline.comm._engine import Gradients

Tensor = torch.Tensor

# Each parameter's step depends on that parameter's gradient and state alone.
SEPARATE = (
    "ASGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
)


class Awaited(torch.Tensor):
    """A gradient whose sum is on its way. What is done with it is done with the plain tensor, after
    waiting.
    """

    wait: Callable[[], None]
    plain: Tensor

    @staticmethod
    def of(plain: Tensor, wait: Callable[[], None]) -> Awaited:
        made: Awaited = torch.Tensor._make_subclass(Awaited, plain)
        made.wait, made.plain = wait, plain
        return made

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*_arrived(args), **_arrived(kwargs or {}))


def _arrived(given: Any) -> Any:
    if isinstance(given, Awaited):
        given.wait()
        return given.plain
    if isinstance(given, dict):
        return {key: _arrived(value) for key, value in given.items()}
    if type(given) in (list, tuple):
        return type(given)(_arrived(value) for value in given)
    return given


class Stepwise:
    """Of one optimizer: `step` in its own dictionary, in place of its class's."""

    def __init__(self, optimizer: Any, gradients: Gradients) -> None:
        kind = type(optimizer)
        if kind not in [getattr(torch.optim, name, None) for name in SEPARATE]:
            raise ValueError(
                f"paceline.comm.Gradients: overlap is a {kind.__qualname__} of"
                f" {kind.__module__.partition('._')[0]}: its step may need all gradients at once;"
                f" use one of torch.optim's {', '.join(SEPARATE)} (paceline.accelerate has Adam,"
                " AdamW and SGD run fused), or no overlap"
            )
        self._optimizer = optimizer
        self._gradients = gradients
        self._step = optimizer.step
        self._ours: Any = None

    def install(self) -> None:
        stepwise = self

        # With the marks of the other: a learning-rate schedule that was made before looks for its
        # own.
        @functools.wraps(self._step)
        def step(optimizer: Any, closure: Callable[[], Any] | None = None) -> Any:
            return stepwise.step(closure)

        self._ours = self._optimizer.step = types.MethodType(step, self._optimizer)

    def uninstall(self) -> None:
        if self._optimizer.__dict__.get("step") is self._ours:
            self._optimizer.step = self._step

    @untraced
    def step(self, closure: Callable[[], Any] | None) -> Any:
        gradients, optimizer = self._gradients, self._optimizer
        if closure is not None:

            def summed() -> Any:
                loss = closure()
                self._refuse_early()
                gradients.synchronize()
                return loss

            return self._step(summed)
        self._refuse_early()
        if _has_step_hooks(optimizer) or not gradients.under_way:
            gradients.synchronize()
            return self._step()
        with one_step(optimizer):
            self._bucket_by_bucket()
        return None

    def _refuse_early(self) -> None:
        self._gradients.refuse_early_step(
            p for group in self._optimizer.param_groups for p in group["params"]
        )

    def _bucket_by_bucket(self) -> None:
        """Whoever has no gradient is left alone by a step: so each bucket has its turn while the
        others have none.
        """
        gradients = self._gradients
        kept = {
            p: p.grad
            for group in self._optimizer.param_groups
            for p in group["params"]
            if p.grad is not None
        }
        on_their_way = {p for bucket, _ in gradients.under_way for p in bucket.parameters()}
        # What the program has put in the place of a gradient stays, as without overlap.
        waiting = {p for p in on_their_way if p in kept and not gradients.is_replaced(p)}
        try:
            for parameter in kept:
                parameter.grad = None
            self._update({p: grad for p, grad in kept.items() if p not in waiting})
            while gradients.under_way:
                with exposed():
                    bucket = gradients.next_bucket()
                come = {
                    p: view for p, view in zip(bucket.parameters(), bucket.views) if p in waiting
                }
                kept.update(come)
                self._update(come)
        finally:
            for parameter, grad in kept.items():
                parameter.grad = grad

    def _update(self, grads: dict[Tensor, Tensor]) -> None:
        if not grads:
            return
        for parameter, grad in grads.items():
            parameter.grad = grad
        self._step()
        for parameter in grads:
            parameter.grad = None


def _has_step_hooks(optimizer: Any) -> bool:
    """Whether the program watches whole steps: of this optimizer, or of all (PyTorch 2; 1.13 has
    none).
    """
    own = (getattr(optimizer, f"_optimizer_step_{when}_hooks", None) for when in ("pre", "post"))
    of_all = (
        getattr(torch_optimizer, f"_global_optimizer_{when}_hooks", None)
        for when in ("pre", "post")
    )
    return any(own) or any(of_all)
