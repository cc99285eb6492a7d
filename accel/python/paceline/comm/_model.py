# SPDX-License-Identifier: Apache-2.0
"""Tells which DistributedDataParallel models can have the hook, and reads their device, timeout and
sizes of buckets. _ddp and _patch use it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from paceline.comm import _hierarchy
from paceline.comm._handle import TIMEOUT

FIRST_BUCKET, BUCKET = 1 << 20, 25 << 20  # PyTorch's defaults, in bytes


def why_not(model: Any) -> str:
    """Returns an empty text if the hook can carry this model's gradients, else why not."""
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        return f"a {type(model).__name__}, no DistributedDataParallel"
    for option in (
        "mixed_precision",
        "_use_python_reducer",
        "skip_all_reduce_unused_params",
        "batched_grad_copy",
    ):
        if getattr(model, option, None):
            return f"DistributedDataParallel with {option.strip('_')}"
    if getattr(model, "_delay_all_reduce_params", None):
        return "DistributedDataParallel with delay_all_reduce_named_params"
    devices = {p.device for p in model.module.parameters() if p.requires_grad}
    kinds = {device.type for device in devices}
    if len(devices) != 1 or not kinds <= set(_hierarchy.BACKENDS):
        return (
            f"parameters on {', '.join(sorted(map(str, devices))) or 'no device'}, not on the CPU"
            " or one GPU alone"
        )
    kind, backend = kinds.pop(), _backends_of(model.process_group)
    wanted = _hierarchy.BACKENDS[kind]
    if backend != wanted and f"{kind}:{wanted}" not in backend:
        return f"a process group of {backend}, not {wanted}"
    if model.process_group.size() < 2:
        return "one rank, with no other to communicate with"
    return ""


def _backends_of(group: Any) -> str:
    """Returns a group's backend, "gloo", or one for each kind of device, "cpu:gloo,cuda:nccl"."""
    told = getattr(dist, "get_backend_config", dist.get_backend)(group)
    return str(told)


def device_of(model: Any) -> torch.device:
    """Returns the device of the parameters of a model that `why_not` accepts."""
    device: torch.device = next(p.device for p in model.module.parameters() if p.requires_grad)
    return device


def bucket_sizes(model: Any) -> list[int]:
    """Returns about how many bytes the buckets of a model have. The reducer fills them in the order
    of gradients, which is about that of parameters from last to first.
    """
    cap = int(getattr(model, "bucket_bytes_cap", BUCKET))
    first = min(cap, FIRST_BUCKET) if getattr(model, "bucket_bytes_cap_default", True) else cap
    filled: dict[torch.dtype, int] = {}
    limits: dict[torch.dtype, int] = {}
    sizes = []
    for one in reversed([p for p in model.module.parameters() if p.requires_grad]):
        filled[one.dtype] = filled.get(one.dtype, 0) + one.numel() * one.element_size()
        if filled[one.dtype] >= limits.get(one.dtype, first):
            sizes.append(filled.pop(one.dtype))
            limits[one.dtype] = cap
    return sizes + list(filled.values())


def timeout_of(model: Any) -> timedelta:
    """Returns the timeout of the model's process group, which the program may have set."""
    group = model.process_group
    try:
        backend = group._get_backend(device_of(model)) if hasattr(group, "_get_backend") else group
        return max(backend.options._timeout, timedelta(seconds=1))
    except (AttributeError, RuntimeError):
        return TIMEOUT
