# SPDX-License-Identifier: Apache-2.0
"""What torch and the library tell each other of tensors: the device and the stream that a call is
for, and memory that it has written.
"""

from __future__ import annotations

import functools

import torch
from torch.autograd import forward_ad

Tensor = torch.Tensor
_transform = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", lambda: None)

_increment = getattr(torch.autograd.graph, "increment_version", None)
_increments_lists = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 5)


def why_transformed() -> str:
    """Returns what makes of tensors something else than the memory that they show, or an empty
    text. Within it only PyTorch's own operations can compute.
    """
    if _transform() is not None:
        return "a transform of torch.func"
    if getattr(forward_ad, "_current_level", -1) >= 0:
        return "derivatives in forward mode"
    return ""


def mark_written(tensors: list[Tensor]) -> None:
    """Tells autograd what was written behind its back, so that a graph that still needs the old
    values fails loudly.
    """
    if _increments_lists and _increment is not None:
        _increment(tensors)
        return
    for tensor in tensors:
        # Writes nothing, but in place: an empty view shares the version counter.
        tensor.detach().as_strided((0,), (1,)).zero_()


def index_of(device: torch.device) -> int:
    return 0 if device.index is None else device.index


def stream_of(device: torch.device) -> int:
    """The current one, as the driver's address."""
    return torch.cuda.current_stream(device).cuda_stream


@functools.cache
def multiprocessors(index: int) -> int:
    return torch.cuda.get_device_properties(index).multi_processor_count
