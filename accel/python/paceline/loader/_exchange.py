# SPDX-License-Identifier: Apache-2.0
"""What takes the place of the queues between PyTorch's own multi-process iterator and its own worker loop. Order, seeds, sampling,
exceptions and shutdown stay PyTorch's; only how messages and batches pass is ours.

Every message belongs to a generation, which a resumed iteration begins. What arrives of an earlier one (a loop that was
left early) is dropped, so nobody waits for it.
"""

from __future__ import annotations

import collections
import ctypes
import os
import queue
import struct
import time
from typing import Any, Callable

from torch.utils.data._utils import worker as torch_worker

from paceline.loader import _batches
from paceline.loader._held import Slots
from paceline.loader._native import MAX_SLOTS, Region

_HEAD = struct.Struct("<I")  # to a worker: generation
_ANSWER = struct.Struct("<IiQQ")  # to the maker: generation, slot, where in it a large pickle lies and its size
DONE = 4  # the argument of PyTorch's worker loop that tells it to end (an event)
LARGE = 32 * 1024  # a pickle that does not go through the ring
SLOT_BYTES = 1 << 30  # of address space; what no batch was written to takes no memory


class Exchange:
    """The maker's side, one per iterator."""

    def __init__(self, workers: int, prefetch: int) -> None:
        slots = min(MAX_SLOTS, prefetch + 2)  # those being filled or waiting, one in use, one not yet given up
        self.region = Region(workers, slots, SLOT_BYTES)
        self.slots = Slots(self.region)
        self.generation = 0
        self.local: collections.deque[Any] = collections.deque()
        self.in_slabs = 0
        self.in_messages = 0

    def put(self, worker: int, value: Any) -> None:
        """What PyTorch puts into a worker's queue."""
        if isinstance(value, torch_worker._ResumeIteration):
            # PyTorch waits for the workers to say that they have seen it, to drop what comes before. The generation does that.
            self.local.append((value, None))
            if worker == 0:
                self.generation += 1
        self.region.tell(worker, _HEAD.pack(self.generation) + _batches.dumps(value))

    def get(self, timeout: float) -> Any:
        """The next of what a worker put. Raises queue.Empty when the time is over."""
        end = time.monotonic() + timeout
        while True:
            if self.local:
                return self.local.popleft()
            left = end - time.monotonic()
            found = self.region.collect(max(0, int(left * 1000)))
            if found is None:
                # After a signal too: its handlers have run, and may have raised that a worker died.
                if left <= 0:
                    raise queue.Empty
                continue
            generation, slot, _, _ = _ANSWER.unpack_from(found[1])
            if generation == self.generation:
                return self._open(*found)
            if slot >= 0:
                self.region.release(found[0], slot)

    def _open(self, worker: int, message: bytes) -> Any:
        _, slot, begin, size = _ANSWER.unpack_from(message)
        if slot < 0:
            self.in_messages += 1
            return _batches.loads(memoryview(message)[_ANSWER.size :])
        self.in_slabs += 1
        buffer = self.slots.hold(worker, slot)
        data = memoryview(buffer)[begin : begin + size] if size else memoryview(message)[_ANSWER.size :]
        return _batches.loads(data, buffer)


class Worker:
    """A worker's side, in its process."""

    def __init__(self, region: Region, worker: int, done: Any) -> None:
        self.region, self.worker = region, worker
        self.slab = _batches.Slab(region, worker)
        self.generation = 0
        self.parent = os.getppid()
        self.done = done

    def get(self, timeout: float) -> Any:
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            message = self.region.hear(self.worker, max(0, int(left * 1000)))
            if message is not None:
                (self.generation,) = _HEAD.unpack_from(message)
                return _batches.loads(memoryview(message)[_HEAD.size :])
            if left <= 0:
                raise queue.Empty

    def put(self, value: Any) -> None:
        if isinstance(value[0], torch_worker._ResumeIteration):
            return
        try:
            data = _batches.dumps(value, self.slab)
        except Exception:
            # PyTorch prints it in the worker, and the training waits forever.
            self.slab.finish()
            where = f"in DataLoader worker process {self.worker}, sending a batch"
            data = _batches.dumps((value[0], torch_worker.ExceptionWrapper(where=where)))
        begin, size = 0, 0
        if len(data) > LARGE:
            begin = self.slab.allocate(len(data))
            if begin >= 0:
                address = self.region.address(self.worker, self.slab.slot)
                ctypes.memmove(address + begin, data, len(data))
                size, data, self.slab.used = len(data), b"", True
        slot = self.slab.finish()
        self._send(_ANSWER.pack(self.generation, slot, max(0, begin), size) + data)

    def _send(self, message: bytes) -> None:
        sent = ctypes.c_uint64()
        while not self.region.answer(self.worker, message, 200, sent):
            if os.getppid() != self.parent:
                os._exit(1)  # nobody will ever read it
            if self.done.is_set():
                return  # nor now: the loop ends by what it is told next


class IndexQueue:
    """What PyTorch knows as the queue of one worker."""

    def __init__(self, exchange: Exchange, worker: int) -> None:
        self._exchange, self._worker = exchange, worker
        self.inside: Worker | None = None  # in the worker's process

    def put(self, value: Any) -> None:
        self._exchange.put(self._worker, value)

    def get(self, timeout: float) -> Any:
        assert self.inside is not None
        return self.inside.get(timeout)

    def cancel_join_thread(self) -> None:
        """There is no thread."""

    def close(self) -> None:
        """The memory ends with the last batch in it."""


class ResultQueue:
    """What PyTorch knows as the queue of all workers' results."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.inside: Worker | None = None

    def put(self, value: Any) -> None:
        if self.inside is not None:
            self.inside.put(value)
        else:
            self._exchange.local.append(value)

    def get(self, timeout: float) -> Any:
        return self._exchange.get(timeout)

    def cancel_join_thread(self) -> None:
        """There is no thread."""

    def close(self) -> None:
        """The memory ends with the last batch in it."""


class Context:
    """The multiprocessing context that PyTorch's iterator is given: its queues are ours, all else is of the real one."""

    def __init__(self, exchange: Exchange, real: Any) -> None:
        self._exchange, self._real = exchange, real
        self._results: ResultQueue | None = None
        self._index_queues: list[IndexQueue] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def Queue(self) -> Any:
        if self._results is None:
            self._results = ResultQueue(self._exchange)
            return self._results
        self._index_queues.append(IndexQueue(self._exchange, len(self._index_queues)))
        return self._index_queues[-1]

    def Process(self, target: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        # PyTorch makes a worker's queue, then its process.
        own, results = self._index_queues[-1], self._results
        number, region = len(self._index_queues) - 1, self._exchange.region
        assert results is not None

        def run(*args: Any) -> None:
            inside = Worker(region, number, args[DONE])
            own.inside = results.inside = inside
            _batches.collate_into(inside.slab)
            target(*args)

        return self._real.Process(target=run, args=args)
