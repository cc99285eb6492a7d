# SPDX-License-Identifier: Apache-2.0
"""Sparse gradients whose values are whole rows: how they are made and divided, on every PyTorch
from 1.13 on. _ddp and _sums use them for embedding tables.
"""

from __future__ import annotations

import torch

Tensor = torch.Tensor

# PyTorch 2.14 warns where nobody has said whether to check; 1.13 knows no such word.
UNCHECKED = (
    {"check_invariants": False} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}
)


def of_rows(indices: Tensor, values: Tensor, shape: torch.Size) -> Tensor:
    return torch.sparse_coo_tensor(indices.unsqueeze(0), values, shape, **UNCHECKED)


def no_rows(like: Tensor) -> Tensor:
    values = torch.empty(0, *like.shape[1:], dtype=like.dtype, device=like.device)
    return of_rows(torch.empty(0, dtype=torch.int64, device=like.device), values, like.shape)


def divided(rows: Tensor, ranks: int) -> Tensor:
    """A sparse tensor of rows. One without any may have forgotten that it is of rows, in PyTorch
    1.13.
    """
    if rows._nnz() == 0:
        return no_rows(rows)
    return of_rows(rows._indices()[0], rows._values() / ranks, rows.shape)
