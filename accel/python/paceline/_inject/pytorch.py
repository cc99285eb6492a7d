# SPDX-License-Identifier: Apache-2.0
"""Patches PyTorch, and turns on the features that the job asks for.

PyTorch 2.5 and later calls `on_torch` itself, at the end of `import torch`: the dist-info folder on
PYTHONPATH registers it in the entry point group torch.backends. For older releases sitecustomize
calls `after_older_torch` when torch has been imported. torch turns an exception of an entry point
into a failed `import torch`, so none leaves this file.

It runs in every Python process of the container that imports torch, torchrun's agent, loader
workers and helper tools included. It only replaces a few functions there: the first training mark
loads the library and opens the ring.
"""

from __future__ import annotations

import atexit
import os
import sys

from paceline._core import contract
from paceline._core.environment import AIAK, disabled, is_asked, told, why_disabled
from paceline._core.log import say

# typing itself is not imported: that takes some milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

_done = False


def on_torch() -> None:
    """Patches PyTorch, once. Called while `import torch` is ending."""
    global _done
    if _done:
        return
    if disabled():
        if told(contract.DISABLE) != "1":
            say(f"PyTorch is left as it is: {why_disabled()}")
        return
    _done = True
    _try(_stacks, "a hang is told without stacks")
    _try(_trace, "tracing is off")
    if told(contract.EXPLAIN_FILE):
        _try(_explain, "what acted is not told")
    if told(contract.EFFECTS_FILE):
        _try(_effects, "what acts is not told")
    if told(contract.LOG_TO):
        _try(_log_to, "nothing is logged elsewhere")
    if told(contract.NETWORK):
        _try(_network, "what NCCL was told is not explained")
    if os.environ.get("CUDA_INJECTION64_PATH"):
        _try(_windows, "profilers do not get the GPU's tracer to themselves")
    # A feature is imported only if the job asks for it.
    if is_asked(contract.OPTIMIZER):
        _try(_optimizers, "PyTorch's optimizers are left as they are")
    if is_asked(contract.LOADER):
        _try(_loaders, "PyTorch's loaders are left as they are")
    if is_asked(contract.PRECISION):
        _try(_precision, "models compute as they are written")
    if is_asked(contract.COMPILE):
        _try(_compiled, "models stay as they are")
    if is_asked(contract.OPERATORS):
        _try(install_operators, "models compute by their own operations")
    if _communication_is_asked():
        _try(_communication, "gradients are communicated by PyTorch")


def after_older_torch(torch: ModuleType) -> None:
    """Does what the entry point does, where torch is too old to have entry points."""
    if _version(torch) < (2, 5):
        on_torch()


def _version(torch: ModuleType) -> tuple[int, int]:
    numbers = str(getattr(torch, "__version__", "0.0")).split(".")
    try:
        return int(numbers[0]), int(numbers[1])
    except (IndexError, ValueError):
        return 0, 0


def _try(install: Callable[[], None], otherwise: str) -> None:
    try:
        install()
    except BaseException as error:  # training goes on without this feature
        say(f"{otherwise}: {type(error).__name__}: {error}")


def _communication_is_asked() -> bool:
    if is_asked(contract.COMMUNICATION):
        return True
    refused = told(contract.COMMUNICATION) == "Disabled"
    return not refused and any(os.environ.get(name) == "1" for name in AIAK)


def _trace() -> None:
    from paceline import _tracing
    from paceline._core import predictions

    _tracing.install(sys.modules["torch"])
    predictions.install()


def _stacks() -> None:
    """Ranks that a framework's own launcher starts are no outermost Python of the container."""
    from paceline._inject import stacks

    if told(contract.TELEMETRY_SOCKET):
        stacks.install()


def _explain() -> None:
    from paceline._core import explain

    atexit.register(explain.write_at_exit, told(contract.EXPLAIN_FILE))


def _effects() -> None:
    from paceline._core import effects

    effects.install(told(contract.EFFECTS_FILE))
    if os.environ.get("RANK", "0") == "0":
        from paceline._tracing import _flops

        _flops.install()


def _log_to() -> None:
    from paceline._core import hand_over

    hand_over.install(told(contract.LOG_TO))


def _network() -> None:
    from paceline._core import network

    network.install()


def _windows() -> None:
    from paceline._core import windows

    windows.install(sys.modules["torch"])


def _optimizers() -> None:
    from paceline.optim import _choice, _patch

    _patch.install()
    _choice.begin = _try_step


def _try_step(choice: Any) -> None:
    from paceline.tune import _tuner

    _tuner.try_step(choice)


def _loaders() -> None:
    from paceline.loader import _patch

    _patch.install()


def _precision() -> None:
    from paceline.amp import _patch

    _patch.install()


def _compiled() -> None:
    from paceline.tune import _patch

    _patch.install()


def install_operators() -> None:
    """Also called by paceline.accelerate."""
    from paceline._inject import detection, operators, swin

    operators.begin_trial = _try_operators
    swin.install()
    detection.install()


def _try_operators() -> Callable[[], None]:
    from paceline._inject import operators_trial

    return operators_trial.begin()


def _communication() -> None:
    from paceline.comm import _patch

    _patch.install()
