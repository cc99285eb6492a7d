# SPDX-License-Identifier: Apache-2.0
"""Which size of buckets is quickest, for the engine: each of a few in turn for some passes, then
the best of them for good.

What counts is the time from a pass's first gradient to its last sum, by the lower quartile of the
passes of a size, the mean of all ranks: so all choose the same.
"""

from __future__ import annotations

import time

import torch

from paceline.comm._communicator import Communicator

CANDIDATES = (25.0, 1.0, 4.0, 10.0, 64.0)  # MiB; the first where nothing is measured
PASSES = 5  # of each, after one that is not counted


class BucketSize:
    """Of one engine. `most` is the bytes of a bucket now."""

    def __init__(self, whole: int) -> None:
        """`whole`: bytes of all gradients. Sizes that hold them all are one."""
        sizes = [size * (1 << 20) for size in CANDIDATES]
        smaller = [size for size in sizes if size < whole]
        self._left = smaller + [size for size in sizes if size >= whole][:1]
        self._seconds: dict[float, list[float]] = {}
        self._began = 0.0
        self.most = self._left[0]

    @property
    def chosen(self) -> bool:
        return not self._left

    def begin(self) -> None:
        """With the first gradient of a pass."""
        self._began = time.monotonic()

    def end(self) -> None:
        """With its last sum."""
        self._seconds.setdefault(self.most, []).append(time.monotonic() - self._began)

    def next(self, communicator: Communicator) -> bool:
        """Between passes, by all ranks: whether `most` is another now."""
        if len(self._seconds.get(self.most, ())) <= PASSES:
            return False
        before = self.most
        del self._left[0]
        if self._left:
            self.most = self._left[0]
            return True
        tried = list(self._seconds)
        quartiles = [sorted(seconds[1:])[len(seconds) // 4] for seconds in self._seconds.values()]
        means = communicator.allreduce(torch.tensor(quartiles, dtype=torch.float64, device="cpu"))
        self.most = tried[int(means.argmin())]
        return self.most != before
