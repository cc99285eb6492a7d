# SPDX-License-Identifier: Apache-2.0
"""PowerSGD for one bucket (Vogels et al., arXiv:1905.13727).

Each matrix M is approximated by P Qᵀ, where P and Q have a few columns. One step of power iteration
starts from the Q of the step before.

Both factors are linear in M, so ranks sum their factors and no rank needs the whole sum: P = Σ M_r
Q, made orthonormal, then Q = Σ M_rᵀ P. Only the factors are sent, between hosts and inside a host.
Each rank keeps an equal share of what P Qᵀ lacks of the sum, and adds it in the next step.

All ranks compute the same bits of P Qᵀ on any processor, because it consists of additions and
products of single elements in a fixed order. On GPUs PyTorch chooses the order of the sums that
make columns orthonormal. It is the same on GPUs of one kind.
"""

from __future__ import annotations

from typing import Any, Callable

import torch

from paceline.comm import _native
from paceline.comm._reducer import Reducer

Tensor = torch.Tensor
Wait = Callable[[], Any]

WORTH = 2  # a tensor is sent whole unless its factors have this many times fewer values


class Power:
    """The compression of one bucket: its factors and its residual. `shapes` are those of the
    bucket's parameters.
    """

    def __init__(
        self, shapes: tuple[torch.Size, ...], rank: int, seed: int, ranks: int, device: torch.device
    ) -> None:
        self._ranks = ranks
        self._matrices: list[tuple[int, int, int]] = []  # where each begins, its rows, its columns
        self._whole: list[tuple[int, int]] = []  # tensors sent whole: where they begin and end
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
        self._residual = torch.zeros(
            sum(rows * columns for _, rows, columns in self._matrices), device=device
        )
        generator = torch.Generator().manual_seed(seed)
        sizes = zip(self._matrices, self._rank)
        self._guess = [
            orthonormal(torch.randn(columns, rank, generator=generator, device="cpu")).to(device)
            for (_, _, columns), rank in sizes
        ]
        # Update these in place: a captured CUDA graph reads them at this address.
        self._q = [guess.clone() for guess in self._guess]

    def start(
        self, communicator: Reducer, buffer: Tensor, _passes: int
    ) -> tuple[Wait | None, Wait]:
        """Begins the sum of P. The first function returned begins the sum of Q, once all buckets of
        the pass have begun. The second waits, and leaves the sum in `buffer`.
        """
        flat = buffer.view(-1)
        matrices = [
            flat[at : at + rows * columns].view(rows, columns)
            for at, rows, columns in self._matrices
        ]
        residuals = [
            part.view_as(m)
            for part, m in zip(self._residual.split([m.numel() for m in matrices]), matrices)
        ]
        for matrix, residual in zip(matrices, residuals):
            matrix.add_(residual)
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
            for i, (matrix, residual, left) in enumerate(zip(matrices, residuals, p)):
                size = matrix.shape[1] * self._rank[i]
                right = summed[:size].view(-1, self._rank[i])
                summed = summed[size:]
                residual.copy_(matrix)
                product(left, right, matrix)
                residual.sub_(matrix, alpha=1 / self._ranks)
                self._q[i].copy_(orthonormal(right))
            # All ranks have the same factors, so all ranks reset their state together.
            spoilt = ~torch.isfinite(
                torch.cat([*factors_summed, *(left.flatten() for left in p)])
            ).all()
            # On a GPU reading `spoilt` would make the host wait, so reset by a mask.
            if spoilt.is_cuda or bool(spoilt):
                self._residual.masked_fill_(spoilt, 0)
                for q, guess in zip(self._q, self._guess):
                    q.copy_(torch.where(spoilt, guess, q))

        return turn, end

    def state_dict(self) -> dict[str, Any]:
        return {"rest": self._residual.clone(), "q": [q.clone() for q in self._q]}

    def load(self, state: dict[str, Any]) -> None:
        self._residual.copy_(state["rest"])
        for mine, theirs in zip(self._q, state["q"]):
            mine.copy_(theirs)


def orthonormal(matrix: Tensor) -> Tensor:
    """Returns the matrix with its columns made orthonormal one after another, computed in float64.
    Columns of zeros stay zeros.
    """
    if matrix.is_cuda:
        return orthonormal_by_operators(matrix)
    result = matrix.clone(memory_format=torch.contiguous_format)
    if _native.functions().orthonormalize(result.data_ptr(), *result.shape) != _native.OK:
        raise MemoryError(f"paceline.comm: no memory for a matrix of {tuple(result.shape)}")
    return result


def orthonormal_by_operators(matrix: Tensor) -> Tensor:
    """As `orthonormal`, by PyTorch's operators on the matrix's device. The host does not wait."""
    result = matrix.double()
    for k in range(result.shape[1]):
        column, others = result[:, k], result[:, :k]
        # Project twice: the second time removes what rounding left of the other columns.
        for _ in range(2 if k else 0):
            column.sub_((others * (others * column.unsqueeze(1)).sum(0)).sum(1))
        length = column.square().sum().sqrt()
        column.div_(torch.where(length > 0, length, torch.ones_like(length)))
    return result.float()


def product(left: Tensor, right: Tensor, out: Tensor) -> None:
    """Computes out = left rightᵀ, one column of both after another."""
    for k in range(left.shape[1]):
        a, b = left[:, k].unsqueeze(1), right[:, k].unsqueeze(0)
        if k == 0:
            torch.mul(a, b, out=out)
        else:
            out.add_(a * b)
