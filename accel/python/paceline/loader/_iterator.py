# SPDX-License-Identifier: Apache-2.0
"""PyTorch's multi-process iterator with our exchange in place of its queues."""

from __future__ import annotations

import collections
import time
from typing import Any

import torch
import torch.multiprocessing
from torch.utils.data import dataloader
from torch.utils.data._utils import worker as torch_worker

from paceline._core.environment import disabled, why_disabled
from paceline._core.log import say
from paceline.loader import _device, _fallback, _native, _pinned, _prefetch, _report
from paceline.loader._exchange import Context, Exchange
from paceline.loader._workers import few, hazards
from paceline.loader._workers.passes import Pass
from paceline.loader._workers.plan import Plan, why_not_asked

Base = dataloader._MultiProcessingDataLoaderIter
START_METHODS = ("fork", "forkserver", "spawn")

# The parameters of PyTorch's functions that this file builds on, in versions 1.13 to 2.14.
_LOOP = (
    "dataset_kind dataset index_queue data_queue done_event auto_collation collate_fn drop_last"
    " base_seed init_fn worker_id num_workers persistent_workers shared_seed"
)
TESTED: list[tuple[Any, list[tuple[str, ...]]]] = [
    (Base.__init__, [("self", "loader")]),
    (Base._reset, [("self", "loader", "first_iter")]),
    (Base._try_put_index, [("self",)]),
    (Base._next_index, [("self",)]),
    (Base._next_data, [("self",)]),
    (Base._process_data, [("self", "data"), ("self", "data", "worker_idx")]),
    (Base._shutdown_workers, [("self",)]),
    (dataloader.DataLoader._get_iterator, [("self",)]),
    (
        torch_worker._worker_loop,
        [tuple(_LOOP.split()), tuple(_LOOP.replace(" dataset ", " dataset_holder ").split())],
    ),
]


def why_untested() -> str:
    """Returns an empty text if this layer was tested with the installed PyTorch's loader, else why
    not."""
    for function, known in TESTED:
        code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
        if code is None or code.co_varnames[: code.co_argcount] not in known:
            return (
                f"{getattr(function, '__qualname__', function)} is not that of a PyTorch this"
                " release was tested with"
            )
    return ""


def why_not(loader: Any) -> str:
    """Returns an empty text if this loader's batches may pass through our slabs, else why not."""
    if disabled():
        return why_disabled()
    if loader.num_workers == 0:
        return "no workers (num_workers=0): samples are made in the training process"
    why = _native.why_unavailable() or why_untested()
    if why:
        return why
    if isinstance(loader.dataset, (dataloader.IterDataPipe, dataloader.MapDataPipe)):
        return "its dataset is a DataPipe"
    method = hazards.start_method(loader)
    if method not in START_METHODS:
        return f"its workers start by {method}, which is none of {', '.join(START_METHODS)}"
    if not getattr(loader, "in_order", True):
        return "in_order=False: there is no order to keep"
    if loader.num_workers > _native.MAX_WORKERS:
        return f"{loader.num_workers} workers, more than {_native.MAX_WORKERS}"
    if loader.prefetch_factor + 2 > _native.MAX_SLOTS:
        return f"prefetch_factor={loader.prefetch_factor}, more than {_native.MAX_SLOTS - 2}"
    return _pinned.why_not(loader)


class _Seen:
    """A loader as PyTorch's iterator sees it. It has our multiprocessing context. If the exchange
    pins the batches, PyTorch sees nothing to pin.
    """

    def __init__(self, loader: Any, context: Context, exchange: Exchange) -> None:
        self._loader = loader
        self.multiprocessing_context = context
        self.pin_memory = loader.pin_memory and exchange.pinning is None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class Iterator(Base):  # type: ignore[misc, valid-type]
    """One pass over a loader; with persistent workers, all its passes."""

    _profile_name: str

    def __init__(
        self,
        loader: Any,
        exchange: Exchange,
        account: _report.Account,
        order: _prefetch.Order | None = None,
        meter: few.Meter | None = None,
    ) -> None:
        self._exchange = exchange
        self._meter = meter  # whether there are too few workers
        self._account = account
        self._order = order
        self._kept = _fallback.Kept(loader)
        self._instead: Any = None  # PyTorch's iterator, once ours has failed
        self._tasks: collections.deque[Any] = collections.deque()  # asked for, not handed out
        self._handed = 0  # tasks of this pass whose batch, or error, the program has got
        context = loader.multiprocessing_context or torch.multiprocessing
        super().__init__(_Seen(loader, Context(exchange, context), exchange))
        exchange.region.started()
        self._profile_name = self._profile_name.replace(type(self).__name__, Base.__name__)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if self._instead is not None:
            self._instead._reset(self._kept)
            self._sampler_iter, self._num_yielded = self._instead._sampler_iter, 0
            return
        self._tasks.clear()
        self._handed = 0
        try:
            if self._order is not None:
                self._order.begins()
        except Exception as error:
            self._account.why_no_prefetch = f"{type(error).__name__}: {error}"
            self._order = None
        try:
            super()._reset(loader, first_iter)
            self._exchange.compared()
        except Exception as error:
            self._go_on_without(error)

    def _next_index(self) -> Any:
        try:
            task = super()._next_index()
        except StopIteration:
            # PyTorch has sent every task of this pass. It asks again with every batch that it
            # hands out, so the next epoch's tasks go out one by one.
            self._prefetch_next_epoch()
            raise
        self._tasks.append(task)
        return task

    def _prefetch_next_epoch(self) -> None:
        exchange = self._exchange
        exchange.compared()
        if self._order is None:
            return
        try:
            if exchange.misses_in_a_row < _prefetch.MISSES_IN_A_ROW:
                exchange.fill(self._order.predicted)
                return
            self._account.why_no_prefetch = (
                f"the order was predicted wrongly {_prefetch.MISSES_IN_A_ROW} times in a row"
            )
        except Exception as error:
            self._account.why_no_prefetch = f"{type(error).__name__}: {error}"
        self._order = None

    def _next_data(self) -> Any:
        began = time.perf_counter()
        batch = self._next_of_ours() if self._instead is None else self._instead._next_data()
        waited = time.perf_counter() - began
        self._account.waited(waited)
        if self._meter is not None and self._instead is None:
            self._note(self._meter, waited)
        return batch

    def _note(self, meter: few.Meter, waited: float) -> None:
        try:
            if not meter.handed(waited, self._workers, self._index_sampler):
                self._meter = None
        except Exception as error:  # the program's training goes on
            self._account.plan.left(f"{type(error).__name__}: {error}")
            self._meter = None

    def _next_of_ours(self) -> Any:
        try:
            batch = super()._next_data()
        except Exception as error:
            if not _fallback.is_ours(error):
                self._note_handed()
                raise
            self._go_on_without(error)
            return self._instead._next_data()
        self._note_handed()
        return batch

    def _note_handed(self) -> None:
        while self._handed < self._rcvd_idx and self._tasks:
            self._tasks.popleft()
            self._handed += 1

    def _go_on_without(self, error: Exception) -> None:
        """Has PyTorch's iterator make the rest of this pass, and all later ones. Raises the error
        again if that cannot be."""
        if not _fallback.is_ours(error) or not self._kept.can_go_on or self._sampler_iter is None:
            raise error
        self._shutdown_workers()
        self._instead = self._kept.rest_of_pass(self._tasks, self._sampler_iter, self._base_seed)
        why = f"{type(error).__name__}: {error}"
        self._account.why = f"ours failed in a pass: {why}"
        say(f"a loader is PyTorch's own from batch {self._handed} of this pass on: {why}")

    def _process_data(self, data: Any, *worker: Any) -> Any:
        batch = super()._process_data(data, *worker)
        if self._exchange.copies is not None:
            self._exchange.copies.delivered(batch, self._upcoming())
        return batch

    def _upcoming(self) -> Any:
        """Returns the batch that PyTorch hands out next, or None if it has not arrived. After the
        last batch of a pass, this is the first predicted batch of the next.
        """
        if self._rcvd_idx == self._send_idx:
            return self._exchange.landed(0, of_next=True)
        kept = self._task_info.get(self._rcvd_idx, ())
        return kept[1] if len(kept) == 2 else self._exchange.landed(self._rcvd_idx)

    def _shutdown_workers(self) -> None:
        if self._instead is not None:
            self._instead._shutdown_workers()
            return
        try:
            super()._shutdown_workers()
        except Exception as error:  # workers are told to end through the exchange, which may fail
            if not _fallback.is_ours(error):
                raise
        finally:
            self._account.add(self._exchange)
            self._exchange.region.retire()


def _why_no_copies(loader: Any) -> str:
    """Returns an empty text if batches may be copied to the device before the program asks, else
    why not."""
    return (
        _device.why_not()
        if _pinned.wanted(loader)
        else "pin_memory is not set, or there is no accelerator"
    )


def iterator(loader: Any) -> Any:
    """Returns our iterator, or None if PyTorch's own must be used. In that case no random number
    has been drawn."""
    account = _report.account_of(loader)
    if loader.num_workers == 0:
        begun = _with_workers(loader, account)
        if begun is not None:
            return begun
    try:
        why = why_not(loader)
        if not why:
            given, workers, meter = _with_more_workers(loader, account)
            account.why_no_prefetch = _prefetch.why_not(loader)
            order = _prefetch.Order(loader, workers) if not account.why_no_prefetch else None
            pinning = _pinned.Pinning() if _pinned.wanted(loader) else None
            forked = hazards.start_method(loader) == "fork"
            exchange = Exchange(workers, loader.prefetch_factor, pinning, forked)
            if _device.asked(loader):
                account.copies = _why_no_copies(loader)
                exchange.copies = None if account.copies else _device.Copies()
    except Exception as error:  # a program's own loader class may hold anything in its attributes
        why = f"{type(error).__name__}: {error}"
    if why:
        account.left(loader, why)
        return None
    account.began(exchange)
    try:
        return Iterator(given, exchange, account, order, meter)
    except BaseException:
        exchange.region.retire()
        raise


def _with_more_workers(loader: Any, account: _report.Account) -> tuple[Any, int, few.Meter | None]:
    """Returns the settings of a loader that has workers, the number that it gets, and what measures
    whether they are enough."""
    try:
        plan = account.plan = few.planned(loader, account.plan)
    except Exception:  # a program's own loader class may hold anything in its attributes
        plan = account.plan = None
    if plan is None or plan.why:
        return loader, loader.num_workers, None
    given: Any = loader
    if plan.workers > loader.num_workers:
        given = _fallback.Kept(loader)
        given.num_workers = min(plan.workers, _native.MAX_WORKERS)
    ahead = loader.prefetch_factor * given.num_workers
    meter = few.Meter(plan, ahead) if plan.asked is None and plan.after is None else None
    return given, given.num_workers, meter


class _Worked(Iterator):
    """The part of a pass that workers make for a loader that has none. If it fails, the pass goes
    on without workers."""

    def _go_on_without(self, error: Exception) -> None:
        raise error


def _with_workers(loader: Any, account: _report.Account) -> Any:
    """Returns an iterator that gives this loader workers if that gains, or None if it gets none."""
    if disabled() or why_not_asked():
        return None
    try:
        if account.plan is None:
            account.plan = Plan()
        kept = _fallback.Kept(loader)
        why = hazards.why_not(loader)
        if why:
            account.plan.left(why)
    except Exception as error:  # a program's own loader class may hold anything in its attributes
        account.plan.left(f"{type(error).__name__}: {error}")
    if account.plan.why:
        return None

    def start(kept: Any) -> Any:
        if _native.why_unavailable() or why_untested() or _pinned.why_not(kept):
            return Base(kept)
        pinning = _pinned.Pinning() if _pinned.wanted(kept) else None
        exchange = Exchange(kept.num_workers, kept.prefetch_factor, pinning)
        account.began(exchange)
        try:
            return _Worked(kept, exchange, account)
        except BaseException:
            exchange.region.retire()
            raise

    account.why = "no workers (num_workers=0) yet: samples are made in the training process"
    return Pass(loader, kept, account.plan, start)
