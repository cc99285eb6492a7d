# SPDX-License-Identifier: Apache-2.0
"""Sparse gradients whose values are whole rows: how they are made and divided, on every PyTorch
from 1.13 on. _ddp and _bucket_sums use them for embedding tables.
"""

from __future__ import annotations

import torch

Tensor = torch.Tensor

# PyTorch 2.14 warns if `check_invariants` is not given; 1.13 does not know it.
UNCHECKED = (
    {"check_invariants": False} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}
)


def of_rows(indices: Tensor, values: Tensor, shape: torch.Size) -> Tensor:
    """Makes a sparse tensor from the numbers of its rows and the rows themselves."""
    return torch.sparse_coo_tensor(indices.unsqueeze(0), values, shape, **UNCHECKED)


def no_rows(like: Tensor) -> Tensor:
    """Makes a sparse tensor of this shape, dtype and device that has no rows."""
    values = torch.empty(0, *like.shape[1:], dtype=like.dtype, device=like.device)
    return of_rows(torch.empty(0, dtype=torch.int64, device=like.device), values, like.shape)


def divided(rows: Tensor, ranks: int) -> Tensor:
    """Divides a sparse tensor of rows by the number of ranks. An empty one is made again, because
    in PyTorch 1.13 it may have lost the shape of its rows.
    """
    if rows._nnz() == 0:
        return no_rows(rows)
    return of_rows(rows._indices()[0], rows._values() / ranks, rows.shape)
