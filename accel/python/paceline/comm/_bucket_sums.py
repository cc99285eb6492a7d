# SPDX-License-Identifier: Apache-2.0
"""The sums of one model's buckets over a communicator: how each begins, as it is, compressed or
sparse, and what begins when all of a pass have.

The hook of DistributedDataParallel (_ddp) has scaled the buckets before.
"""

from __future__ import annotations

import collections
import time
from typing import Any, Callable, Union

import torch

from paceline.comm._communicator import DTYPES, Communicator
from paceline.comm._compression import Compression, Compressor
from paceline.comm._hierarchy import Hierarchy
from paceline.comm._rows import of_rows

Tensor = torch.Tensor
Carrier = Union[Communicator, Hierarchy]
WAITS = 4096  # of a model's last passes
Result = Callable[[], Tensor]  # waits for a sum, and answers it


class Sums:
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
        """Else the process group's all_reduce knows how."""
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
        """Of a buffer that has been scaled. `bucket` has the methods of torch's GradBucket that
        compression asks.
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
        """When all buckets of a pass have begun, on all ranks."""
        began = time.perf_counter()
        while self._turns:
            self._turns.pop(0)()
        self._waiting += time.perf_counter() - began

    def end_pass(self) -> None:
        self.passes += 1
        self.waits.append(self._waiting)
        self._waiting = 0.0

    def _start_sparse(self, buffer: Tensor) -> Result:
        """A sum of rows blocks: in its turn, so that no hook does."""
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
