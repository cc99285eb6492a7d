# SPDX-License-Identifier: Apache-2.0
"""Replaces the queues between PyTorch's multi-process iterator and its worker loop.

Order, seeds, sampling, exceptions and shutdown stay PyTorch's. Only the way of messages and batches
is ours.

Every message belongs to a generation. A resumed iteration begins a new one. If the program leaves a
loop early, results of that generation still arrive; they are dropped.

The first tasks of the next generation may be sent before PyTorch asks for them (_prefetch.py
predicts them). When PyTorch asks, each task is compared with the predicted one. Equal tasks need
not be sent again. At the first difference that generation is dropped. The workers then restore
their random state from before it, and all tasks are sent again.

Workers that were not forked get what they need of this with their process: the region, whose file
they map, and PyTorch's own arguments.

If batches are pinned, each request starts the copies of all arrived batches (_pinned.py).
"""

from __future__ import annotations

import collections
import ctypes
import multiprocessing
import os
import queue
import struct
import sys
import time
from typing import Any, Callable

from torch.utils.data._utils import worker as torch_worker

from paceline.loader import _batches, _prefetch
from paceline.loader._device import Copies
from paceline.loader._native import MAX_SLOTS, Region
from paceline.loader._pinned import Landing, Pinning
from paceline.loader._slots import Slots

# Before each message to a worker: the generation, and one of the three actions below.
_HEAD = struct.Struct("<II")
# SAVE_STATE keeps the random state. RESTORE_STATE restores the state of the generation before.
PLAIN, SAVE_STATE, RESTORE_STATE = range(3)
# Before each message to the training process: the generation and the slot. A large pickle lies in
# the slot; then its offset and size follow.
_ANSWER = struct.Struct("<IiQQ")
# Indices of arguments of PyTorch's worker loop: its two queues begin here, and the event that ends
# it follows them.
QUEUES, DONE = 2, 4
LARGE = 32 * 1024  # bytes; larger pickles go through the slot, not the ring
SLOT_BYTES = 1 << 30  # bytes of address space; unwritten pages take no memory


class Exchange:
    """The training process's side. Each iterator has one."""

    def __init__(
        self, workers: int, prefetch: int, pinning: Pinning | None = None, forked: bool = True
    ) -> None:
        # `prefetch` slots are being filled or wait, the program uses one, and one may be late.
        slots = min(MAX_SLOTS, prefetch + 2)
        self.region = Region(workers, slots, SLOT_BYTES, forked)
        self.slots = Slots(self.region)
        self.workers = workers
        self.generation = 0
        self.local: collections.deque[Any] = collections.deque()
        self.in_slabs = 0
        self.in_messages = 0
        # The predicted tasks of the next generation, each with its worker. The first `sent` ones
        # were sent, and PyTorch has asked for the first `matched` ones.
        self.predicted: list[tuple[int, bytes]] = []
        self.sent = 0
        self.matched = 0
        self.filling = False  # tasks of the next generation are sent while this pass goes on
        self.comparing = False  # PyTorch asks for the first tasks of the next generation
        # Messages that have arrived: of this generation, and of the next one.
        self.ready: collections.deque[tuple[int, bytes]] = collections.deque()
        self.early: collections.deque[tuple[int, bytes]] = collections.deque()
        self.pinned = 0
        self.copies: Copies | None = None  # early copies of batches to the device
        self.pinning = pinning
        # Batches that are being pinned: of this generation, and of the next one.
        self.landing: collections.deque[Landing] = collections.deque()
        self.early_landing: collections.deque[Landing] = collections.deque()
        self.hits = 0
        self.misses = 0
        self.misses_in_a_row = 0
        self.dropped = self.region.word  # the generation that was dropped last

    def put(self, worker: int, value: Any) -> None:
        """Takes what PyTorch puts into a worker's queue."""
        if isinstance(value, torch_worker._ResumeIteration):
            # PyTorch waits for the workers' answer to this, to drop earlier results. Generations
            # drop them already, so the answer is given here.
            self.local.append((value, None))
            if worker == 0:
                self.generation += 1
                self.comparing, self.filling = self.filling, False
                self._forget()  # results of a pass that the program left early
                self.early, self.ready = self.ready, self.early
                self.early_landing, self.landing = self.landing, self.early_landing
            if self.comparing:
                return  # the workers have got it already
        data = _batches.dumps(value)
        if self.comparing and value is not None:
            if self.matched < self.sent and self.predicted[self.matched] == (worker, data):
                self.matched += 1
                return
            self.compared()
        self._tell(worker, data)

    def _tell(self, worker: int, data: bytes, what: int = PLAIN, later: int = 0) -> None:
        self.region.tell(worker, _HEAD.pack(self.generation + later, what) + data)

    def fill(self, predicted: Callable[[], list[tuple[int, Any]]]) -> None:
        """Sends one predicted task of the next generation. PyTorch has no more tasks of this one,
        so the workers have room for it."""
        if not self.filling:
            self.predicted = [(worker, _batches.dumps(task)) for worker, task in predicted()]
            self.sent = self.matched = 0
            if not self.predicted:
                return
            self.filling = True
            for worker in range(self.workers):
                self._tell(worker, _batches.dumps(torch_worker._ResumeIteration()), SAVE_STATE, 1)
        if self.sent < len(self.predicted):
            self._tell(*self.predicted[self.sent], later=1)
            self.sent += 1

    def compared(self) -> None:
        """Ends the comparison after the last task of this pass. If PyTorch asked for other tasks
        than predicted, all predicted tasks are dropped."""
        if not self.comparing:
            return
        self.comparing = False
        if self.matched == self.sent:
            self.hits += 1
            self.misses_in_a_row = 0
            return
        self.misses += 1
        self.misses_in_a_row += 1
        self.dropped.value = self.generation
        self.generation += 1
        self._forget()
        for worker in range(self.workers):
            self._tell(worker, _batches.dumps(torch_worker._ResumeIteration()), RESTORE_STATE)
        for worker, task in self.predicted[: self.matched]:
            self._tell(worker, task)

    def get(self, timeout: float) -> Any:
        """Returns the next result of the workers. Raises queue.Empty after `timeout` seconds."""
        end = time.monotonic() + timeout
        while True:
            if self.local:
                return self.local.popleft()
            if self.pinning is not None:
                self._land(self.pinning)
            if self.landing:
                return self.landing.popleft().arrived()
            if self.ready:
                return self._open(*self.ready.popleft())[0]
            left = end - time.monotonic()
            # A signal ends the wait early and without a message, so look at the time again.
            if not self._collect(left) and left <= 0:
                raise queue.Empty

    def _collect(self, seconds: float) -> bool:
        """Waits up to `seconds` for one message. Returns whether one came."""
        found = self.region.collect(max(0, int(seconds * 1000)))
        if found is None:
            return False
        generation = _ANSWER.unpack_from(found[1])[0]
        if generation == self.generation:
            self.ready.append(found)
        elif self.filling and generation == self.generation + 1:
            self.early.append(found)
        else:
            self._drop(*found)
        return True

    def _land(self, pinning: Pinning) -> None:
        while self._collect(0):
            pass
        for arrived, landing in ((self.ready, self.landing), (self.early, self.early_landing)):
            while arrived:
                landing.append(pinning.begin(*self._open(*arrived.popleft())))
                self.pinned += 1

    def _forget(self) -> None:
        """Drops the results of this generation, because the program left the pass."""
        self.landing.clear()
        while self.ready:
            self._drop(*self.ready.popleft())

    def landed(self, number: int, of_next: bool = False) -> Any:
        """Returns the batch of this number, of this pass or the next, if it is pinned already; else
        None.
        """
        looks = (
            landing.look(number) for landing in (self.early_landing if of_next else self.landing)
        )
        return next((batch for batch in looks if batch is not None), None)

    def _drop(self, worker: int, message: bytes) -> None:
        slot = _ANSWER.unpack_from(message)[1]
        if slot >= 0:
            self.region.release(worker, slot)

    def _open(self, worker: int, message: bytes) -> tuple[Any, Any]:
        """Returns what the worker sent, and the slot with its tensors, or None for no slot."""
        _, slot, begin, size = _ANSWER.unpack_from(message)
        if slot < 0:
            self.in_messages += 1
            return _batches.loads(memoryview(message)[_ANSWER.size :]), None
        self.in_slabs += 1
        buffer = self.slots.lend(worker, slot)
        data = (
            memoryview(buffer)[begin : begin + size]
            if size
            else memoryview(message)[_ANSWER.size :]
        )
        return _batches.loads(data, buffer), buffer


class Worker:
    """A worker's side, in its process: both queues of PyTorch's loop."""

    def __init__(self, region: Region, worker: int, done: Any) -> None:
        self.region, self.worker = region, worker
        self.slab = _batches.Slab(region, worker)
        self.dropped = region.word
        self.skipped = 0  # the last generation that was dropped before this worker began it
        self.saved: tuple[int, Any] = (0, None)  # generation, and the random state before it
        self.generation = 0
        self.parent = os.getppid()
        # Known where a fork server is the parent. The server lives on while it has any worker.
        maker = multiprocessing.parent_process()
        self.maker = maker if maker is not None and maker.pid != self.parent else None
        self.done = done

    def _is_alone(self) -> bool:
        """Whether the training process has died."""
        if self.maker is not None:
            return not self.maker.is_alive()
        return os.getppid() != self.parent

    def get(self, timeout: float) -> Any:
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            message = self.region.hear(self.worker, max(0, int(left * 1000)))
            if message is not None:
                generation, what = _HEAD.unpack_from(message)
                if what == SAVE_STATE and generation == self.dropped.value:
                    self.skipped = generation
                if generation and generation in (self.skipped, self.dropped.value):
                    continue
                self.generation = generation
                if what == SAVE_STATE:
                    self.saved = (generation, _prefetch.random_state())
                elif what == RESTORE_STATE and self.saved[0] == generation - 1:
                    _prefetch.restore(self.saved[1])
                return _batches.loads(memoryview(message)[_HEAD.size :])
            if left <= 0:
                if self.maker is not None and self._is_alone():
                    sys.exit(1)  # PyTorch's loop looks at the parent only
                raise queue.Empty

    def put(self, value: Any) -> None:
        if isinstance(value[0], torch_worker._ResumeIteration):
            return
        try:
            data = _batches.dumps(value, self.slab)
        except Exception:
            # Otherwise PyTorch would only print the error in the worker, and the training would
            # wait forever.
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
            if self._is_alone():
                os._exit(1)
            if self.done.is_set():
                return  # the loop ends with its next message

    def cancel_join_thread(self) -> None:
        """There is no thread."""

    def close(self) -> None:
        """The memory is freed with the last batch in it."""


class Loop:
    """What a worker's process runs: PyTorch's loop, with our side in place of the queues."""

    def __init__(self, loop: Callable[..., Any], region: Region, worker: int) -> None:
        self._loop, self._region, self._worker = loop, region, worker

    def __call__(self, *args: Any) -> None:
        inside = Worker(self._region, self._worker, args[DONE])
        _batches.collate_into(inside.slab)
        self._loop(*args[:QUEUES], inside, inside, *args[DONE:])


class IndexQueue:
    """Stands for PyTorch's queue of tasks to one worker."""

    def __init__(self, exchange: Exchange, worker: int) -> None:
        self._exchange, self._worker = exchange, worker

    def put(self, value: Any) -> None:
        self._exchange.put(self._worker, value)

    def cancel_join_thread(self) -> None:
        """There is no thread."""

    def close(self) -> None:
        """The memory is freed with the last batch in it."""


class ResultQueue:
    """Stands for PyTorch's queue of all workers' results."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def put(self, value: Any) -> None:
        self._exchange.local.append(value)

    def get(self, timeout: float) -> Any:
        return self._exchange.get(timeout)

    def cancel_join_thread(self) -> None:
        """There is no thread."""

    def close(self) -> None:
        """The memory is freed with the last batch in it."""


class Context:
    """The multiprocessing context that PyTorch's iterator gets. Its queues are ours; everything
    else comes from the real context.
    """

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
        # PyTorch makes a worker's queue first, then its process.
        loop = Loop(target, self._exchange.region, len(self._index_queues) - 1)
        args = (*args[:QUEUES], None, None, *args[DONE:])
        return self._real.Process(target=loop, args=args)
