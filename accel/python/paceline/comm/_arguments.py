# SPDX-License-Identifier: Apache-2.0
"""Checks the tensors that are passed to a Communicator, and describes them to the library."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

Tensor = torch.Tensor

DTYPES = {
    torch.float32: 0,
    torch.float64: 1,
    torch.float16: 2,
    torch.bfloat16: 3,
    torch.int32: 4,
    torch.int64: 5,
}


def dtype_of(tensor: Tensor, name: str) -> int:
    """Returns the library's number of a tensor's dtype. ValueError names a tensor that it cannot
    take.
    """
    if tensor.device.type != "cpu":
        raise ValueError(
            f"paceline.comm: {name} is on {tensor.device}: it must be on the CPU; on GPUs use"
            " torch.distributed with NCCL"
        )
    if tensor.layout is not torch.strided or not tensor.is_contiguous():
        raise ValueError(f"paceline.comm: {name} must be contiguous: pass {name}.contiguous()")
    found = DTYPES.get(tensor.dtype)
    if found is None:
        raise ValueError(
            f"paceline.comm: {name} is of {tensor.dtype}: it must be one of"
            f" {', '.join(map(str, DTYPES))}"
        )
    return found


def counts_of(
    name: str, tensor: Tensor, counts: Sequence[int] | None, ranks: int
) -> ctypes.Array[ctypes.c_uint64]:
    """Returns the elements of each rank's piece of a tensor, for the library."""
    given = list(counts or ())
    if len(given) != ranks or min(given) < 0 or sum(given) != tensor.numel():
        raise ValueError(
            f"paceline.comm: {name}_split_sizes is {given}: it must say for each of"
            f" {ranks} ranks how many of the {tensor.numel()} elements of {name} are its"
        )
    return (ctypes.c_uint64 * ranks)(*given)


def dtype_of_pieces(name: str, whole: Tensor, part_name: str, part: Tensor, ranks: int) -> int:
    """Checks that one tensor has a piece of another\'s size for each rank. Returns their dtype."""
    if whole.numel() != part.numel() * ranks or whole.dtype is not part.dtype:
        raise ValueError(
            f"paceline.comm: {name} has {whole.numel()} elements of {whole.dtype}: it must have"
            f" {ranks} times the {part.numel()} of {part_name}, of {part.dtype}"
        )
    dtype_of(whole, name)
    return dtype_of(part, part_name)
