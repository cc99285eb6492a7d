# SPDX-License-Identifier: Apache-2.0
"""Marks the steps of optimizers and of gradient scalers."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable

from paceline._core import library as abi
from paceline._core.marks import optimizer_indices, optimizer_made, step_ended
from paceline._core.trace import trace
from paceline._tracing._patching import accept, compiling, replace, say_once

# Optimizers that a gradient scaler is asked to step and has not stepped yet, by id: a scaler calls
# `step` or leaves it.
_scaled: set[int] = set()


def patch(torch: ModuleType) -> None:
    from torch.optim import Optimizer

    # Every optimizer calls this from __init__ and __setstate__, to wrap its class's step for the
    # profiler; ours goes around that, once per class that defines a step.
    name = (
        "_patch_step_function"
        if hasattr(Optimizer, "_patch_step_function")
        else "_hook_for_profile"
    )
    original: Any = getattr(Optimizer, name, None)
    if not accept("Optimizer.step", original):
        return
    is_compiling = compiling(torch)

    def timed_closure(closure: Callable[[], Any]) -> Callable[[], Any]:
        @functools.wraps(closure)
        def timed() -> Any:
            library = trace.lib
            if library is None:
                return closure()
            library.phase_enter(abi.FORWARD)
            try:
                return closure()
            finally:
                library.phase_leave(abi.FORWARD)

        return timed

    def traced(step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)  # takes the mark `hooked` along
        def traced_step(self: Any, *args: Any, **kwargs: Any) -> Any:
            library = trace.lib
            if is_compiling() or library is None:
                return step(self, *args, **kwargs)
            if args and callable(args[0]):
                args = (timed_closure(args[0]), *args[1:])
            elif callable(kwargs.get("closure")):
                kwargs["closure"] = timed_closure(kwargs["closure"])
            if _scaled:
                _scaled.discard(id(self))
            index = optimizer_indices.of(self)
            library.optimizer_enter(index)
            try:
                return step(self, *args, **kwargs)
            finally:
                library.optimizer_leave(index)
                for ended in tuple(step_ended) if step_ended else ():
                    ended(self)

        traced_step._paceline = True  # type: ignore[attr-defined]
        return traced_step

    @functools.wraps(original)
    def hook_step(self: Any) -> None:
        original(self)
        try:
            step = type(self).step
            if not getattr(step, "_paceline", False):
                # The class that defines it, so that its other subclasses are wrapped as well, and
                # only once.
                owner = next(base for base in type(self).__mro__ if "step" in base.__dict__)
                if owner is not Optimizer:
                    replace(owner, "step", traced(step))
            for made in optimizer_made:
                made(self)
        except Exception as error:
            say_once(f"the optimizer {type(self).__name__}", error)

    replace(Optimizer, name, hook_step)


def patch_scaler(torch: ModuleType) -> None:
    """A step whose gradients are not finite is a step too, without an update; the scaler's
    unscaling is the optimizer's time. An optimizer that takes the scale itself (fused ones) decides
    on the device: nobody on the host knows.
    """
    scaler = getattr(getattr(torch, "amp", None), "GradScaler", None) or torch.cuda.amp.GradScaler
    original = scaler.step
    if not accept("GradScaler.step", original):
        return
    is_compiling = compiling(torch)

    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        library = trace.lib
        if (
            is_compiling()
            or library is None
            or not getattr(type(optimizer).step, "_paceline", False)
        ):
            return original(self, optimizer, *args, **kwargs)
        key = id(optimizer)
        index = optimizer_indices.of(optimizer)
        library.optimizer_enter(index)
        _scaled.add(key)
        try:
            result = original(self, optimizer, *args, **kwargs)
            if key in _scaled:
                library.count(abi.SCALER_SKIPS, 1)
            return result
        finally:
            _scaled.discard(key)
            library.optimizer_leave(index)

    replace(scaler, "step", step)
