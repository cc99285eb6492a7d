# SPDX-License-Identifier: Apache-2.0
"""Marks the writing of checkpoints."""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any, Callable

from paceline._core import library as abi
from paceline._core.trace import trace
from paceline._tracing._patching import accept, replace


def timed_save(save: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(save)
    def timed(*args: Any, **kwargs: Any) -> Any:
        library = trace.lib
        if library is None:
            return save(*args, **kwargs)
        library.phase_enter(abi.CHECKPOINT)
        try:
            return save(*args, **kwargs)
        finally:
            library.phase_leave(abi.CHECKPOINT)

    return timed


def patch(torch: ModuleType) -> None:
    if not accept("torch.save", torch.save):
        return
    timed = timed_save(torch.save)
    replace(torch, "save", timed)
    replace(torch.serialization, "save", timed)


def patch_distributed(saver: ModuleType) -> None:
    for name in ("save", "async_save"):
        save = getattr(saver, name, None)
        if save is None:
            continue
        replace(saver, name, timed_save(save))
        # The package re-exports them; it may have done so already.
        package = sys.modules.get("torch.distributed.checkpoint")
        if package is not None and getattr(package, name, None) is save:
            replace(package, name, getattr(saver, name))
    trace.patches["torch.distributed.checkpoint"] = "on"
