# SPDX-License-Identifier: Apache-2.0
"""Sums one model's gradient buckets over a communicator: dense, compressed or sparse.

The hook of DistributedDataParallel (_ddp) divides the buckets by the number of ranks before.
"""

from __future__ import annotations

import collections
import time
from typing import Any, Callable, Union

import torch

from paceline.comm._arguments import DTYPES
from paceline.comm._communicator import Communicator
from paceline.comm._compression import Compression, Compressor
from paceline.comm._hierarchy import Hierarchy
from paceline.comm._sparse_rows import of_rows

Tensor = torch.Tensor
Carrier = Union[Communicator, Hierarchy]
WAITS = 4096  # how many of a model's last passes are kept for the report
Result = Callable[[], Tensor]  # waits for a sum, and returns it


class Sums:
    """The sums of one model. A pass is one backward; all ranks begin its buckets in one order."""

    def __init__(self, carrier: Carrier, how: Compression | None) -> None:
        self.carrier = carrier
        self.compressor = None if how is None else Compressor(how, carrier)
        self.host_waits = isinstance(carrier, Communicator)
        self.passes = 0
        self.waits: collections.deque[float] = collections.deque(
            maxlen=WAITS
        )  # seconds of each pass in which this process waited for sums
        self._waiting = 0.0
        self._turns: list[Callable[[], Any]] = []

    def takes(self, buffer: Tensor) -> bool:
        """Tells whether this class can sum the buffer. If not, use the process group's
        all_reduce.
        """
        if buffer.layout is torch.strided:
            return buffer.dtype in DTYPES or buffer.is_complex()
        if (
            buffer.layout is not torch.sparse_coo
            or buffer.is_cuda
            or not isinstance(self.carrier, Communicator)
        ):
            return False
        of_rows = buffer.sparse_dim() == 1 or buffer._nnz() == 0
        return of_rows and buffer.dtype in DTYPES and buffer.shape[1:].numel() > 0

    def start(self, bucket: Any, buffer: Tensor) -> Result:
        """Begins the sum of a buffer, which is already divided by the number of ranks.

        `bucket` is torch's GradBucket, or has the methods of it that compression calls. The result
        waits for the sum.
        """
        if buffer.layout is not torch.strided:
            return self._start_sparse(buffer)
        if self.compressor is not None and self.compressor.takes(buffer, self.passes):
            turn, wait = self.compressor.start(bucket, buffer)
            if turn is not None:
                self._turns.append(turn)
        else:
            whole = torch.view_as_real(buffer) if buffer.is_complex() else buffer
            wait = self.carrier.all_reduce(whole.view(-1), async_op=True).wait
            if self.compressor is not None:
                wait = self.compressor.uncompressed(wait, bucket, buffer)

        def summed() -> Tensor:
            began = time.perf_counter()
            wait()
            self._waiting += time.perf_counter() - began
            return buffer

        return summed

    def turn(self) -> None:
        """Begins what follows the first sums of a pass. All ranks do so after their last bucket, so
        that their calls have the same order.
        """
        began = time.perf_counter()
        while self._turns:
            self._turns.pop(0)()
        self._waiting += time.perf_counter() - began

    def end_pass(self) -> None:
        """Counts a pass whose last bucket has begun."""
        self.passes += 1
        self.waits.append(self._waiting)
        self._waiting = 0.0

    def _start_sparse(self, buffer: Tensor) -> Result:
        """Delays a sparse sum until `turn`, because it blocks and a hook must not."""
        own = buffer.coalesce()
        sums: list[Tensor] = []

        def turn() -> None:
            assert isinstance(self.carrier, Communicator)
            indices, rows = self.carrier.all_reduce_sparse(
                own.indices()[0].contiguous(), own.values().contiguous()
            )
            sums.append(of_rows(indices, rows, own.shape)._coalesced_(True))

        self._turns.append(turn)
        return lambda: sums[0]
