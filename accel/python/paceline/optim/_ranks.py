# SPDX-License-Identifier: Apache-2.0
"""Whether the ranks that train together may all use the library. Replicas whose ranks round
differently would drift apart, so all use it or none. A rank that is silent for a minute counts as
one that cannot.

The ranks agree through the store of their process group.

- On the library: when the group begins, when the program asks for it, or in the first step.
- On the kernels: in the first step on GPUs. Asking earlier would start CUDA too early.
- In a step that fails before it has changed anything.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable

from paceline._core.agreement import agree, numbered
from paceline._core.environment import attempt
from paceline._core.log import say
from paceline.optim import _native


class Agreement:
    """The agreement of the ranks in the open process group. None: there is none yet."""

    verdict: bool | None = None
    devices: bool | None = None  # on GPUs too
    steps = 0  # that this process has begun since then


def watch(module: Any) -> list[Callable[[], None]]:
    """Has every process group begin with an agreement. Returns functions that undo this."""
    undo: list[Callable[[], None]] = []
    original = module.init_process_group

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        try:
            _agree(module)
        except Exception as error:
            Agreement.verdict = False
            say(
                "PyTorch's optimizers are left as they are: ranks could not agree:"
                f" {type(error).__name__}: {error}"
            )
        return result

    package: Any = sys.modules.get("torch.distributed")
    for owner in (module, package):
        if owner is not None and getattr(owner, "init_process_group", None) is original:
            owner.init_process_group = init_process_group
            undo.append(functools.partial(setattr, owner, "init_process_group", original))
    return undo


def agree_once() -> None:
    """Agrees in a process group that began without an agreement. All its ranks call this at the
    same place.
    """
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is not None and module.is_initialized() and Agreement.verdict is None:
        try:
            _agree(module)
        except Exception:
            Agreement.verdict = False
            raise


def _agree(module: Any) -> None:
    """Makes the agreement on the library. All ranks come here in the same call."""
    Agreement.verdict, Agreement.devices, Agreement.steps = None, None, 0
    if module.get_world_size() < 2:
        return
    refused = _ask(module, "optimizer", _native.why_unavailable())
    Agreement.verdict = not refused
    if refused:
        say(f"PyTorch's optimizers are left as they are on all ranks: {refused}")


def _ask(module: Any, what: str, why: str) -> str:
    """Tells the other ranks `why` this one cannot. Returns why the ranks leave it; empty if all of
    them can. Raises TimeoutError if some do not come.
    """
    store, rank = module._get_default_store(), module.get_rank()
    name = numbered(store, f"paceline/{what}/{attempt()}", rank)
    return agree(store, name, rank, module.get_world_size(), why)


def agree_on_device(why: str) -> None:
    """Agrees on the kernels, in the first step on a GPU. `why`: why this rank has none."""
    module = _of_several()
    if module is None or not Agreement.verdict or Agreement.devices is not None:
        return
    try:
        refused = _ask(module, "optimizer on GPUs", why)
    except Exception as error:
        refused = f"{type(error).__name__}: {error}"
    Agreement.devices = not refused
    if refused:
        say(f"PyTorch's own step runs on all ranks: {refused}")


def agree_on_failure(error: Exception) -> None:
    """Called if a step has failed and nothing was changed. Returns if all ranks have failed in this
    step, or if there are no others. Otherwise the others have stepped by the library, and this
    rank's copy would differ by rounding: raises RuntimeError, which ends the job.
    """
    module = _of_several()
    if module is None or not Agreement.verdict:
        return
    try:
        _ask(module, f"optimizer failed in {Agreement.steps}", "")
    except Exception as absent:
        raise RuntimeError(
            f"paceline: the fused step failed on rank {module.get_rank()} and not on all ranks"
            f" ({type(error).__name__}: {error}). PyTorch's step would let this rank's parameters"
            " drift apart from the others' by rounding. Mend the cause, or set"
            f" PACELINE_OPTIMIZER=Disabled on all ranks ({absent})"
        ) from error


def _of_several() -> Any:
    """Returns PyTorch's module of process groups if this rank is one of several, else None."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is None or not module.is_initialized() or module.get_world_size() < 2:
        return None
    return module


def agree_at_first_step() -> None:
    """Agrees on the library in a group that began before the patch, or by a function that the patch
    does not reach. All ranks come here in their first step.
    """
    module = _of_several()
    if module is None or Agreement.verdict is not None:
        return
    try:
        _agree(module)
    except Exception as error:
        Agreement.verdict = False
        say(
            "PyTorch's optimizers are left as they are: ranks could not agree:"
            f" {type(error).__name__}: {error}"
        )


def why_refused(on_device: bool) -> str:
    """Returns why this process may not use the library, or its kernels on a GPU, since other ranks
    cannot. Empty if it may.
    """
    distributed = sys.modules.get("torch.distributed")
    ranks = 1
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        ranks = distributed.get_world_size()
    else:
        told = os.environ.get("WORLD_SIZE", "1")
        ranks = int(told) if told.isdigit() else 1
    if ranks < 2 or (Agreement.verdict and (Agreement.devices or not on_device)):
        return ""
    if Agreement.verdict:
        return "the ranks have not all found kernels for their GPUs"
    if Agreement.verdict is None:
        return f"{ranks} ranks without a process group to agree in"
    return "another rank cannot"
