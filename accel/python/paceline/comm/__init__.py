# SPDX-License-Identifier: Apache-2.0
"""Collectives of CPU tensors between the ranks of a job, and the gradients of
DistributedDataParallel over them. Names and call shapes follow torch.distributed.

    communicator = paceline.comm.Communicator()        # all ranks of the process group
    communicator.all_reduce(tensor)                    # in place, the same bits on all ranks
    work = communicator.all_reduce(tensor, async_op=True)
    work.wait()
    communicator.all_to_all(output, input)
    paceline.comm.ddp_hook(model)                      # sums this model's gradients from now on
    paceline.comm.ddp_hook(model, compression="Int8")  # in fewer bytes between hosts (class Lossy)

In an unmodified program spec.acceleration.communication does the same as `ddp_hook`.

Gradients on a GPU in an NCCL group need no communicator. They are summed over PyTorch's own process
groups, inside each host first.

Ranks of one host pass data through shared memory. Hosts use RDMA if both ends can, else TCP. If a
rank dies or stops, every wait of every other rank ends with a CommError that names it. Numerics
class Reordered: sums have another order than gloo's. bfloat16 and float16 are added in float32.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paceline.comm._communicator import Communicator
    from paceline.comm._compression import OneBit, PowerSGD
    from paceline.comm._ddp import ddp_hook, load_state_dict, state_dict
    from paceline.comm._dgc import DGC
    from paceline.comm._native import CommError
    from paceline.comm._one_bit import OneBitAdam
    from paceline.comm._work import Work

__all__ = [
    "DGC",
    "CommError",
    "Communicator",
    "OneBit",
    "OneBitAdam",
    "PowerSGD",
    "Work",
    "ddp_hook",
    "load_state_dict",
    "state_dict",
]

_MODULES = {
    "DGC": "_dgc",
    "CommError": "_native",
    "Communicator": "_communicator",
    "OneBit": "_compression",
    "OneBitAdam": "_one_bit",
    "PowerSGD": "_compression",
    "Work": "_work",
    "ddp_hook": "_ddp",
    "load_state_dict": "_ddp",
    "state_dict": "_ddp",
}


def __getattr__(name: str) -> Any:
    """Imports a name when it is first used: `import paceline.comm` alone loads no PyTorch."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found
