# SPDX-License-Identifier: Apache-2.0
"""Collectives between the ranks of a job, on CPU tensors, and the gradients of
DistributedDataParallel over them.

    communicator = paceline.comm.Communicator()        # all ranks of the process group
    communicator.allreduce(tensor)                     # in place, the same bits on all ranks
    communicator.alltoall(output, input)               # and others, also from one rank to another
    paceline.comm.ddp_hook(model)                      # the model's gradients go this way from now
    on
    paceline.comm.ddp_hook(model, compression="Int8")  # the same in fewer bytes between hosts
    (class Lossy)

Gradients on a GPU in a group of NCCL go by way of hosts over PyTorch's own process groups (FP16 and
BF16 between hosts), without a communicator.

Ranks of one host pass data through shared memory, hosts through RDMA where both ends can, else
through TCP. A rank that dies or stops ends every wait of every other with a CommError that names
it. Numerics class: Reordered, for sums have another order than gloo's; bfloat16 and float16 are
added in float32.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paceline.comm._communicator import Communicator, Started
    from paceline.comm._compression import OneBit, PowerSGD
    from paceline.comm._ddp import ddp_hook, load_state_dict, state_dict
    from paceline.comm._dgc import DGC
    from paceline.comm._native import CommError
    from paceline.comm._one_bit import OneBitAdam

__all__ = [
    "DGC",
    "CommError",
    "Communicator",
    "OneBit",
    "OneBitAdam",
    "PowerSGD",
    "Started",
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
    "Started": "_communicator",
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
