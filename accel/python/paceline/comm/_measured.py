# SPDX-License-Identifier: Apache-2.0
"""Measures which of two ways of a sum is quicker. _hierarchy uses it.

The first sums of each size take both ways in turn, and are timed on their device. A rank that comes
early waits inside a sum for the others, so the least time of all ranks is the sum's own. All ranks
see the same times, and choose the same way at the same sum. The host waits for the device once for
each size, to read the times. Sums that are captured into a CUDA graph are not timed. They take the
second way if none is chosen yet.
"""

from __future__ import annotations

import time
from typing import Any, Callable

import torch
import torch.distributed as dist

Tensor = torch.Tensor
Size = tuple[int, torch.dtype]

SKIPPED = 2  # sums of a size that are not counted, one for each way, because they connect
EACH = 4  # counted sums for each way


class Measured:
    """The measurements of one model. `names` are those of the two ways, and `group` has all
    ranks.
    """

    def __init__(self, names: tuple[str, str], group: Any) -> None:
        self._names = names
        self._group = group
        self._begun: dict[Size, int] = {}
        self._times: dict[Size, list[tuple[Any, Any]]] = {}
        self._chosen: dict[Size, tuple[int, list[float]]] = {}  # the way, and the seconds of both

    def sum(
        self, flat: Tensor, ways: tuple[Callable[[Tensor], None], Callable[[Tensor], None]]
    ) -> None:
        """Sums by one of the ways, on the current stream. All ranks call it with arrays of the same
        sizes, in the same order.
        """
        size = (flat.numel(), flat.dtype)
        if size in self._chosen:
            ways[self._chosen[size][0]](flat)
        elif flat.is_cuda and torch.cuda.is_current_stream_capturing():
            ways[1](flat)
        elif len(self._times.get(size, ())) == 2 * EACH:
            self._choose(size, flat.device)
            ways[self._chosen[size][0]](flat)
        else:
            self._time(size, flat, ways)

    def _time(
        self,
        size: Size,
        flat: Tensor,
        ways: tuple[Callable[[Tensor], None], Callable[[Tensor], None]],
    ) -> None:
        begun = self._begun[size] = self._begun.get(size, 0) + 1
        begin = _mark(flat.device)
        ways[begun % 2](flat)
        if begun > SKIPPED:
            self._times.setdefault(size, []).append((begin, _mark(flat.device)))

    def told(self) -> str:
        """Returns the measured times, for readers; empty while nothing is chosen."""
        found = []
        for (count, dtype), (way, seconds) in self._chosen.items():
            size = count * torch.empty(0, dtype=dtype).element_size() >> 10
            other = seconds[1 - way] * 1e3
            found.append(
                f"{size} KiB {self._names[way]} ({seconds[way] * 1e3:.2f} ms against {other:.2f})"
            )
        return ", ".join(found)

    def _choose(self, size: Size, device: torch.device) -> None:
        times = torch.tensor([_seconds(*marks) for marks in self._times.pop(size)], device=device)
        dist.all_reduce(times, op=dist.ReduceOp.MIN, group=self._group)
        # The first sum that counted went the second way.
        second, first = times.view(EACH, 2).median(0).values.tolist()
        self._chosen[size] = (0 if first < second else 1, [first, second])


def _mark(device: torch.device) -> Any:
    if device.type == "cpu":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _seconds(begin: Any, end: Any) -> float:
    if isinstance(begin, float):
        return float(end - begin)
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3
