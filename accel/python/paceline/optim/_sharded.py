# SPDX-License-Identifier: Apache-2.0
"""Parameters of which each rank has a part (DTensor: FSDP2's fully_shard, tensor parallelism). An
update of single elements is made on the part that is here; state is kept as DTensors too, placed as
its parameter, so that checkpoints are torch's. What is of a whole tensor, or of all of them, needs
the other ranks: the norm for clipping is one allreduce of a number for each mesh, LAMB and LARS are
torch's operations.

Every rank of a mesh calls `squares` or `norm` at the same place, whether its library can update its
part or not.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

Tensor = torch.Tensor


def _kind() -> Any:
    """torch's class, where a program has imported it: without that there is none of it."""
    module = sys.modules.get("torch.distributed.tensor") or sys.modules.get(
        "torch.distributed._tensor"
    )
    return getattr(module, "DTensor", None)


def is_one(tensor: Any) -> bool:
    if type(tensor) is torch.nn.Parameter or type(tensor) is Tensor:
        return False
    kind = _kind()
    return kind is not None and isinstance(tensor, kind)


def local(tensor: Any) -> Tensor:
    """The part that is here, in the same memory; of another tensor itself."""
    return tensor.to_local() if is_one(tensor) else tensor


def like(parameter: Any, part: Tensor) -> Any:
    """This part as one of a tensor that is placed as the parameter; itself where that is no
    DTensor.
    """
    if not is_one(parameter):
        return part
    return _kind().from_local(
        part,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def why_apart(parameter: Any, grad: Any) -> str:
    """Empty where the parts of both that are here are of the same elements."""
    if not is_one(grad):
        return f"a gradient of type {type(grad).__name__} of a DTensor"
    if grad.device_mesh != parameter.device_mesh or grad.placements != parameter.placements:
        return (
            f"a gradient placed as {grad.placements} of a parameter placed as"
            f" {parameter.placements}"
        )
    if any(placement.is_partial() for placement in parameter.placements):
        return "a parameter whose value is a sum over ranks"
    return ""


def whole(value: Any) -> Any:
    """Of all ranks together; of another tensor, or None, itself."""
    return value.full_tensor() if is_one(value) else value


def squares(grads: list[Any]) -> Tensor:
    """Their sum, of all gradients of all ranks together, where they are. What several ranks hold
    whole counts once.
    """
    sums: dict[Any, Tensor] = {}
    for grad in grads:
        key: Any = None
        if is_one(grad):
            if any(placement.is_partial() for placement in grad.placements):
                raise RuntimeError(
                    "paceline.optim: max_grad_norm needs whole gradients, and one is placed as"
                    f" {grad.placements}: redistribute it before the step"
                )
            key = (grad.device_mesh, tuple(grad.placements))
        part = torch.linalg.vector_norm(local(grad.detach()), dtype=torch.float64).square()
        sums[key] = sums[key] + part if key in sums else part
    for key, value in sums.items():
        if key is not None:
            mesh, placements = key
            for dimension, placement in enumerate(placements):
                # FSDP2 places what tensor parallelism has sharded as strided shards, which are no
                # `is_shard()`.
                if not placement.is_replicate():
                    torch.distributed.all_reduce(value, group=mesh.get_group(dimension))
    return torch.stack(list(sums.values())).sum()


def norm(grads: list[Any]) -> float:
    """Of all gradients of all ranks together; the host waits for it."""
    return float(squares(grads)) ** 0.5
