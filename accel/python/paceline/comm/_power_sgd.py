# SPDX-License-Identifier: Apache-2.0
"""PowerSGD for one bucket: each matrix M as P Qᵀ, of a few columns each, by one step of power
iteration from the last Q.

Both factors are linear in M, so the ranks' own factors are summed, and no rank needs a whole sum: P
= Σ M_r Q, made orthonormal, then Q = Σ M_rᵀ P. Only these go over a wire, and inside a host. What P
Qᵀ lacks of the sum stays with the ranks, a rank-th of it each.

All ranks compute the same bits of P Qᵀ, whatever processors they have: only additions and products
of single elements in a fixed order. On GPUs the order of the sums that make columns orthonormal is
PyTorch's, the same on GPUs of one kind.
"""

from __future__ import annotations

from typing import Any, Callable

import torch

from paceline.comm import _native
from paceline.comm._reducer import Reducer

Tensor = torch.Tensor
Wait = Callable[[], Any]

WORTH = 2  # times fewer values, or a tensor goes as it is


class Power:
    def __init__(
        self, shapes: tuple[torch.Size, ...], rank: int, seed: int, ranks: int, device: torch.device
    ) -> None:
        self._ranks = ranks
        self._matrices: list[tuple[int, int, int]] = []  # where it begins, rows, columns
        self._whole: list[tuple[int, int]] = []  # of the others: where they begin and end
        self._rank: list[int] = []
        at = 0
        for shape in shapes:
            size = shape.numel()
            rows = shape[0] if len(shape) > 1 else 1
            columns = size // rows if rows else 0
            least = min(rank, rows, columns)
            if len(shape) > 1 and least > 0 and (rows + columns) * least * WORTH <= size:
                self._matrices.append((at, rows, columns))
                self._rank.append(least)
            else:
                self._whole.append((at, at + size))
            at += size
        self._rest = torch.zeros(
            sum(rows * columns for _, rows, columns in self._matrices), device=device
        )
        generator = torch.Generator().manual_seed(seed)
        sizes = zip(self._matrices, self._rank)
        self._guess = [
            orthonormal(torch.randn(columns, rank, generator=generator, device="cpu")).to(device)
            for (_, _, columns), rank in sizes
        ]
        # Written in place: a captured graph reads them where they lie.
        self._q = [guess.clone() for guess in self._guess]

    def start(
        self, communicator: Reducer, buffer: Tensor, _passes: int
    ) -> tuple[Wait | None, Wait]:
        flat = buffer.view(-1)
        matrices = [
            flat[at : at + rows * columns].view(rows, columns)
            for at, rows, columns in self._matrices
        ]
        rests = [
            part.view_as(m)
            for part, m in zip(self._rest.split([m.numel() for m in matrices]), matrices)
        ]
        for matrix, rest in zip(matrices, rests):
            matrix.add_(rest)
        as_they_are = [flat[begin:end] for begin, end in self._whole]
        sent = torch.cat([*as_they_are, *[(m @ q).flatten() for m, q in zip(matrices, self._q)]])
        first = communicator.all_reduce(sent, async_op=True)
        p: list[Tensor] = []
        second: list[Any] = []

        def turn() -> None:
            first.wait()
            summed = sent
            for tensor in as_they_are:
                tensor.copy_(summed[: tensor.numel()])
                summed = summed[tensor.numel() :]
            for matrix, rank in zip(matrices, self._rank):
                p.append(orthonormal(summed[: matrix.shape[0] * rank].view(-1, rank)))
                summed = summed[matrix.shape[0] * rank :]
            factors = [(m.t() @ one).flatten() for m, one in zip(matrices, p)]
            second.append(
                communicator.all_reduce(torch.cat(factors or [buffer.new_empty(0)]), async_op=True)
            )

        def end() -> None:
            second[0].wait()
            (summed,) = factors_summed = second[0].result()
            for i, (matrix, rest, left) in enumerate(zip(matrices, rests, p)):
                size = matrix.shape[1] * self._rank[i]
                right = summed[:size].view(-1, self._rank[i])
                summed = summed[size:]
                rest.copy_(matrix)
                product(left, right, matrix)
                rest.sub_(matrix, alpha=1 / self._ranks)
                self._q[i].copy_(orthonormal(right))
            # The factors are the same on all ranks, and so is what follows from them.
            spoilt = ~torch.isfinite(
                torch.cat([*factors_summed, *(left.flatten() for left in p)])
            ).all()
            # On a GPU the host does not wait to see it.
            if spoilt.is_cuda or bool(spoilt):
                self._rest.masked_fill_(spoilt, 0)
                for q, guess in zip(self._q, self._guess):
                    q.copy_(torch.where(spoilt, guess, q))

        return turn, end

    def state_dict(self) -> dict[str, Any]:
        return {"rest": self._rest.clone(), "q": [q.clone() for q in self._q]}

    def load(self, state: dict[str, Any]) -> None:
        self._rest.copy_(state["rest"])
        for mine, theirs in zip(self._q, state["q"]):
            mine.copy_(theirs)


def orthonormal(matrix: Tensor) -> Tensor:
    """Its columns, made orthonormal one after another, in float64; zeros stay zeros."""
    if matrix.is_cuda:
        return orthonormal_by_operators(matrix)
    result = matrix.clone(memory_format=torch.contiguous_format)
    if _native.functions().orthonormalize(result.data_ptr(), *result.shape) != _native.OK:
        raise MemoryError(f"paceline.comm: no memory for a matrix of {tuple(result.shape)}")
    return result


def orthonormal_by_operators(matrix: Tensor) -> Tensor:
    """The same where the matrix is, which the host does not wait for."""
    result = matrix.double()
    for k in range(result.shape[1]):
        column, others = result[:, k], result[:, :k]
        # Twice is enough: what rounding has left of the others is gone then.
        for _ in range(2 if k else 0):
            column.sub_((others * (others * column.unsqueeze(1)).sum(0)).sum(1))
        length = column.square().sum().sqrt()
        column.div_(torch.where(length > 0, length, torch.ones_like(length)))
    return result.float()


def product(left: Tensor, right: Tensor, out: Tensor) -> None:
    """out = left rightᵀ, column by column."""
    for k in range(left.shape[1]):
        a, b = left[:, k].unsqueeze(1), right[:, k].unsqueeze(0)
        if k == 0:
            torch.mul(a, b, out=out)
        else:
            out.add_(a * b)
