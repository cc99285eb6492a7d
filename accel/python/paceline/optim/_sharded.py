# SPDX-License-Identifier: Apache-2.0
"""Parameters of which each rank has a part: DTensors, as FSDP2's fully_shard and tensor parallelism
make them. An update of single elements works on this rank's part. State is kept as DTensors too,
placed as their parameter, so that checkpoints are PyTorch's. A norm needs the other ranks: that for
clipping is an all-reduce of one number for each mesh. LAMB and LARS run as PyTorch's operations.

Every rank of a mesh calls `squares` or `norm` at the same place, even if its library cannot update
its part.
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Collection, Iterable
from typing import Any

import torch

Tensor = torch.Tensor


def _kind() -> Any:
    """Returns the class DTensor, or None if the program has not imported it and so has none."""
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
    """Returns this rank's part, in the same memory; a tensor that is no DTensor as it is."""
    return tensor.to_local() if is_one(tensor) else tensor


def parts(tensors: Collection[Any], are_shards: Iterable[bool]) -> Collection[Any]:
    """Returns this rank's part of each tensor; None stays None. `are_shards` tells which of them
    are DTensors, or were when it was found out. Raises AttributeError if one is none any more.

    Called without gradients: a part is then the tensor that the DTensor has, and no copy of it.
    """
    return collections.deque(
        tensor.to_local() if is_shard and tensor is not None else tensor
        for tensor, is_shard in zip(tensors, are_shards)
    )


def like(parameter: Any, part: Tensor) -> Any:
    """Returns a DTensor of this part that is placed as the parameter is, or the part itself if the
    parameter is no DTensor.
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
    """Returns why this rank's parts of both do not have the same elements, or an empty text."""
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


def any_apart(parameters: Iterable[Any], are_shards: Iterable[bool], grads: Iterable[Any]) -> bool:
    """Whether this rank's part of a DTensor's gradient has other elements than that of the
    parameter. None has none. No parameter is a sum over ranks.
    """
    for parameter, is_shard, grad in zip(parameters, are_shards, grads):
        if not is_shard or grad is None:
            continue
        # FSDP2 gives gradients the very placements of their parameters.
        if (
            getattr(grad, "placements", None) is not parameter.placements
            or grad.device_mesh is not parameter.device_mesh
        ) and why_apart(parameter, grad):
            return True
    return False


def whole(value: Any) -> Any:
    """Returns the whole tensor of a DTensor, and another value as it is."""
    return value.full_tensor() if is_one(value) else value


def squares(grads: list[Any]) -> Tensor:
    """Returns the sum of squares of all gradients of all ranks, on the gradients' device. If
    several ranks hold a gradient whole, it counts once.
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
                # `is_shard()` is false for the strided shards that FSDP2 makes of tensors that
                # tensor parallelism has sharded.
                if not placement.is_replicate():
                    torch.distributed.all_reduce(value, group=mesh.get_group(dimension))
    return torch.stack(list(sums.values())).sum()


def norm(grads: list[Any]) -> float:
    """Returns the L2 norm of all gradients of all ranks. The host waits for it."""
    return float(squares(grads)) ** 0.5
