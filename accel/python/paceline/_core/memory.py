# SPDX-License-Identifier: Apache-2.0
"""What torch has to know of memory that the library has written."""

from __future__ import annotations

import torch

Tensor = torch.Tensor

_increment = getattr(torch.autograd.graph, "increment_version", None)
_increments_lists = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 5)


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
