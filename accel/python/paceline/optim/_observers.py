# SPDX-License-Identifier: Apache-2.0
"""PyTorch puts a range for its profiler and calls of hooks around every optimizer's step: 10 us of
the host, 35 behind a backward. They are left out of a step that nobody observes.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import torch

from paceline.optim import _reader


def _known() -> Callable[[Any], bool] | None:
    """Whether this optimizer's step has hooks, or anyone profiles. None where PyTorch does not
    tell.
    """
    try:
        from torch.optim.optimizer import _global_optimizer_post_hooks as last
        from torch.optim.optimizer import _global_optimizer_pre_hooks as first

        # Of any profiler or other observer of PyTorch's operators, on this thread or on all.
        has_callbacks = ctypes.PYFUNCTYPE(ctypes.c_bool)(
            _reader.inner("libtorch_cpu.so", "_ZN2at12hasCallbacksEv")
        )
    except (AttributeError, ImportError, OSError, ValueError):
        return None

    def is_observed(optimizer: Any) -> bool:
        hooks = (
            first
            or last
            or optimizer._optimizer_step_pre_hooks
            or optimizer._optimizer_step_post_hooks
        )
        return bool(hooks) or has_callbacks()

    return is_observed


_is_observed = _known()
_compiling: Callable[[], bool] = getattr(
    getattr(torch, "compiler", None), "is_compiling", None
) or (lambda: False)


def leave_out(kind: Any) -> None:
    """Of the steps of this class of optimizers, as PyTorch is about to put them around; it sees
    that this is done.
    """
    step = kind.step
    if _is_observed is None or getattr(step, "hooked", False):
        return
    around = torch.optim.Optimizer.profile_hook_step
    if around.__module__ != "torch.optim.optimizer":
        return  # someone else's, who counts on being called
    is_observed, observed = _is_observed, around(step)

    @functools.wraps(step)
    def either(self: Any, *closure: Any, **named: Any) -> Any:
        # The compiler knows PyTorch's way; within a closure anything may be begun.
        if _compiling() or closure or named or is_observed(self):
            return observed(self, *closure, **named)
        return step(self)

    either.hooked = True  # type: ignore[attr-defined]
    kind.step = either
