# SPDX-License-Identifier: Apache-2.0
"""Buckets of the engine: gradients of one type, one behind the other in one array, summed by one
allreduce.
"""

from __future__ import annotations

import torch

Tensor = torch.Tensor

FIRST_BYTES = (
    1 << 20
)  # of the first bucket at most, as DistributedDataParallel has it: the wire begins early


# PyTorch 2.14 warns where nobody has said whether to check; 1.13 knows no such word.
UNCHECKED = (
    {"check_invariants": False} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}
)


class Bucket:
    """Of some parameters, by their numbers. Has the methods of torch's GradBucket that compression
    asks.
    """

    def __init__(
        self, index: int, numbers: list[int], parameters: list[Tensor], sparse: bool
    ) -> None:
        self.numbers = numbers
        self.sparse = sparse
        self.missing = len(numbers)  # gradients of this pass that have not come
        self._index = index
        self._parameters = parameters
        sizes = [0 if sparse else parameter.numel() for parameter in parameters]
        self.buffer = torch.zeros(
            sum(sizes), dtype=parameters[0].dtype, device=parameters[0].device
        )
        # Strided as the parameters are, where those lie dense.
        strides = [torch.empty_like(parameter, device="meta").stride() for parameter in parameters]
        shaped = zip(self.buffer.split(sizes), parameters, strides)
        self.views = (
            [] if sparse else [part.as_strided(p.shape, stride) for part, p, stride in shaped]
        )

    def index(self) -> int:
        return self._index

    def parameters(self) -> list[Tensor]:
        return self._parameters

    def gradients(self) -> list[Tensor]:
        return self.views

    def gather(self, ranks: int) -> Tensor:
        """This rank's share of the mean, of those gradients that are there; zeros for those that
        are not.
        """
        if self.sparse:
            parameter = self._parameters[0]
            if parameter.grad is None:
                return no_rows(parameter)
            return (
                divided(parameter.grad, ranks)
                if parameter.grad.is_sparse
                else parameter.grad / ranks
            )
        for parameter, view in zip(self._parameters, self.views):
            if parameter.grad is None:
                view.zero_()
            else:
                torch.mul(
                    parameter.grad, 1.0 / ranks, out=view
                )  # as DistributedDataParallel's reducer has it
        return self.buffer


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


def cut(
    parameters: list[Tensor], order: list[int], sparse: set[int], first: float, most: float
) -> list[Bucket]:
    """`parameters` in this `order`, in buckets of one type each that are closed once they hold
    `most` bytes, the first of a type `first`.
    """
    groups: list[list[int]] = []
    held: dict[torch.dtype, list[int]] = {}
    sizes: dict[torch.dtype, int] = {}
    limits: dict[torch.dtype, float] = {}
    for number in order:
        if number in sparse:
            groups.append([number])
            continue
        parameter = parameters[number]
        kind = parameter.dtype
        held.setdefault(kind, []).append(number)
        sizes[kind] = sizes.get(kind, 0) + parameter.numel() * parameter.element_size()
        if sizes[kind] >= limits.get(kind, first):
            groups.append(held.pop(kind))
            sizes[kind], limits[kind] = 0, most
    groups += held.values()
    return [
        Bucket(index, group, [parameters[number] for number in group], group[0] in sparse)
        for index, group in enumerate(groups)
    ]
