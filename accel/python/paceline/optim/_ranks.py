# SPDX-License-Identifier: Apache-2.0
"""Whether the ranks that train together may all use the library. Replicas whose ranks round
differently would drift apart, so all use it or none. The ranks agree through the store of their
process group, when the group begins or when the program asks for it. A rank that is silent for a
minute counts as one that cannot.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable

import torch

from paceline._core.agreement import arrive, await_verdict, numbered
from paceline._core.environment import attempt
from paceline._core.log import say
from paceline.optim import _device, _native


class Agreement:
    """The agreement of the ranks in the open process group. None: there is none yet."""

    verdict: bool | None = None
    devices = False  # on GPUs too


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
    """Makes the agreement. All ranks come here in the same call. The last one to arrive writes the
    verdict, and all read it.
    """
    Agreement.verdict, Agreement.devices = None, False
    ranks = module.get_world_size()
    if ranks < 2:
        return
    store = module._get_default_store()
    rank = module.get_rank()
    name = numbered(store, f"paceline/optimizer/{attempt()}", rank)
    why = _native.why_unavailable()
    if why:
        store.add(f"{name}/unable", 1)
        say(f"PyTorch's optimizers are left as they are on all ranks: {why}")
    if _why_not_on_gpus(module):
        store.add(f"{name}/unable_on_gpus", 1)
    if arrive(store, name, rank) == ranks:
        able = "cpu" if store.add(f"{name}/unable_on_gpus", 0) else "yes"
        store.set(f"{name}/verdict", "no" if store.add(f"{name}/unable", 0) else able)
    try:
        verdict = await_verdict(store, name, ranks)
    except Exception:
        store.add(f"{name}/unable", 1)  # ranks that come later read it
        raise
    Agreement.verdict, Agreement.devices = verdict != "no", verdict == "yes"


def _why_not_on_gpus(module: Any) -> str:
    """Returns why the library cannot update on one of this host's GPUs, or an empty text. A process
    that does not use GPUs does not ask, since that would start the driver.
    """
    backend = getattr(module, "get_backend_config", module.get_backend)()
    if "nccl" not in str(backend) and not torch.cuda.is_initialized():
        return f"a process group of {backend}, before the first use of a GPU"
    return _device.why_not_everywhere()


@functools.cache
def alone(why: str) -> None:
    """Says once that PyTorch updates on this rank's GPU though the ranks agreed on the library. The
    agreement asks for driver and files only, and here a module could not be loaded.
    """
    say(
        "PyTorch's own step runs on this rank, and the library's on others, so their parameters"
        f" drift apart by rounding: {why}. Mend it, or set PACELINE_OPTIMIZER=Disabled on all ranks"
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
        return "the ranks have not all found kernels for their GPUs when their process group began"
    if Agreement.verdict is None:
        return f"{ranks} ranks without a process group to agree in"
    return "another rank cannot"
