# SPDX-License-Identifier: Apache-2.0
"""Creates, describes and closes one communicator of libpaceline.so. Its subclass Communicator has
the collectives.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast

from paceline.comm import _native
from paceline.comm._addresses import own_address
from paceline.comm._native import CommError

TIMEOUT = timedelta(minutes=30)  # the default of PyTorch's process groups on the CPU
HEARTBEAT_TIMEOUT = timedelta(seconds=10)

# Texts for codes that the library returns without one.
_REFUSALS = {_native.ESYSTEM: "the system refused memory or a thread"}

# The first line of a peer info, and all that a refusal needs
# (accel/src/comm/bootstrap/peer_info.cpp). A rank without the library publishes refusals too.
_PEER_INFO = "paceline-comm 3"
_LONGEST = 4000  # bytes of a reason: a peer info has 16 KiB at most

_living: weakref.WeakSet[Handle] = weakref.WeakSet()
Self = TypeVar("Self", bound="Handle")
Call = TypeVar("Call", bound="Callable[..., Any]")


class Store(Protocol):
    """The store through which ranks find each other. All ranks see its small values."""

    def set(self, key: str, value: bytes) -> None: ...

    def get(self, key: str, timeout: timedelta) -> bytes:
        """Raises TimeoutError if no rank sets the key within this time."""
        ...


def refuse(store: Store, name: str, rank: int, why: str) -> None:
    """Publishes why this rank cannot make the communicator of this name. The other ranks raise
    CommError at once, with this rank and the reason."""
    text = " ".join(why.split()).encode()[:_LONGEST].decode(errors="ignore")
    with contextlib.suppress(Exception):  # if the store is gone, the other ranks will fail too
        store.set(f"{name}/{rank}", f"{_PEER_INFO}\nrefusal={text}\n".encode())


@contextlib.contextmanager
def refusing(store: Store, name: str, rank: int) -> Iterator[None]:
    """Publishes an exception raised within as a refusal, unless another rank caused it."""
    try:
        yield
    except Exception as error:
        if not getattr(error, "of_peer", False):
            refuse(
                store,
                name,
                rank,
                str(error).removeprefix("paceline.comm: ") or type(error).__name__,
            )
        raise


def of_all_ranks(call: Call) -> Call:
    """Decorates methods of a Handle that all ranks call and that block.

    If one raises, the other ranks would wait for this one, so it tells them at once why this rank
    gave up. The library keeps only the first failure. A call with async_op=True does not block, and
    tells them nothing."""

    @functools.wraps(call)
    def told(self: Handle, *arguments: Any, **options: Any) -> Any:
        try:
            return call(self, *arguments, **options)
        except Exception as error:
            if self._handle is not None and not options.get("async_op"):
                self.abort(f"{call.__name__}: {error}")
            raise

    return cast(Call, told)


class Handle:
    """Owns one communicator of the library, and closes it. In a forked child it is closed."""

    def __init__(
        self,
        store: Store,
        rank: int,
        ranks: int,
        *,
        name: str,
        plan: str = "",
        timeout: timedelta = TIMEOUT,
        heartbeat_timeout: timedelta = HEARTBEAT_TIMEOUT,
        flows: int = 0,
        host: str = "",
    ) -> None:
        self._handle: int | None = None
        self.rank, self.ranks = rank, ranks
        with refusing(store, name, rank):
            options = _native.Options(
                ctypes.sizeof(_native.Options),
                rank,
                ranks,
                flows,
                name.encode(),
                host.encode() or None,
                own_address().encode() or None,
                plan.encode() or None,
                _milliseconds(heartbeat_timeout),
                _milliseconds(timeout),
            )
            self._handle = _created(options, store)
        _living.add(self)

    @of_all_ranks
    def barrier(self) -> None:
        """Blocks until all ranks have called it. Raises CommError if a rank is lost or late."""
        self._check(_native.functions().barrier(self._open()))

    def plan(self) -> str:
        """Returns how all-reduces are done. Another communicator of the same ranks that is given
        this text as `plan` computes the same bits. Notes for readers follow "#".
        """
        text = ctypes.create_string_buffer(16384)
        self._check(_native.functions().plan(self._open(), 0, 0, text, len(text)))
        return text.value.decode()

    def shape(self) -> str:
        """Returns how many ranks each host has, for example "4,4". If ranks use several network
        devices, their number follows: "4,4/2".
        """
        text = ctypes.create_string_buffer(16384)
        self._check(_native.functions().shape(self._open(), text, len(text)))
        return text.value.decode()

    @of_all_ranks
    def tune(self, known: str = "", budget: timedelta = timedelta(seconds=1)) -> str:
        """Measures which way of an all-reduce is quickest for each size, and uses it from now on.
        All ranks call it together.

        Args:
            known: what an earlier call returned, on rank 0. If it fits, nothing is measured.
            budget: about how long to measure.

        Returns:
            The choice, for `known`.

        Raises:
            CommError: if a rank is lost or late.
        """
        text = ctypes.create_string_buffer(_native.TEXT)
        self._check(
            _native.functions().tune(
                self._open(), known.encode(), _milliseconds(budget), text, len(text)
            )
        )
        return text.value.decode()

    def abort(self, why: str) -> None:
        """Ends all calls on all ranks with a CommError that names this rank and `why`. Any thread
        may call it.
        """
        _native.functions().abort(self._open(), why.encode())

    def close(self) -> None:
        """Closes the communicator. Calls in flight fail on all ranks, so close it when all are done
        with it.
        """
        handle, self._handle = self._handle, None
        if handle is not None:
            _living.discard(self)
            _native.functions().destroy(handle)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def _open(self) -> int:
        if self._handle is None:
            raise CommError(
                "paceline.comm: the communicator is closed, or of the process that forked this one"
            )
        return self._handle

    def _check(self, code: int) -> None:
        if code == _native.OK:
            return
        if code == _native.EINVAL:
            raise ValueError("paceline.comm: the library refused the arguments")
        text = ctypes.create_string_buffer(_native.TEXT)
        rank = ctypes.c_int32(-1)
        _native.functions().error(self._open(), text, _native.TEXT, ctypes.byref(rank))
        why = text.value.decode(errors="replace") or _REFUSALS.get(code, f"code {code}")
        blamed = rank.value if rank.value >= 0 else None
        raise CommError(f"paceline.comm: {why}", blamed, of_peer=blamed not in (None, self.rank))

    def _peer(self, name: str, rank: int) -> int:
        if not 0 <= rank < self.ranks or rank == self.rank:
            raise ValueError(
                f"paceline.comm: {name} is {rank}: it must be another rank, 0 to {self.ranks - 1}"
            )
        return rank

    def _root(self, name: str, root: int) -> int:
        if not 0 <= root < self.ranks:
            raise ValueError(f"paceline.comm: {name} is {root}: it must be 0 to {self.ranks - 1}")
        return root


def _created(options: _native.Options, store: Store) -> int | None:
    handle = ctypes.c_void_p()
    text = ctypes.create_string_buffer(_native.TEXT)
    failures: list[BaseException] = []
    with _as_the_library_takes_it(store, failures) as taken:
        code = _native.functions().create(
            ctypes.byref(options), ctypes.byref(taken), ctypes.byref(handle), text, _native.TEXT
        )
    if code == _native.OK:
        return handle.value
    why = f"paceline.comm: {text.value.decode(errors='replace')}"
    if code == _native.EINVAL:
        raise ValueError(why)
    raise CommError(why, of_peer=code == _native.EPEER) from (failures[0] if failures else None)


def _milliseconds(time: timedelta) -> int:
    return min(int(time / timedelta(milliseconds=1)), 2**31 - 1)


@contextlib.contextmanager
def _as_the_library_takes_it(
    store: Store, failures: list[BaseException]
) -> Iterator[_native.Store]:
    """Makes a paceline_comm_store of a store. Its exceptions are added to `failures`."""

    def put(_context: int, key: bytes, value: Any, size: int) -> int:
        try:
            store.set(key.decode(), ctypes.string_at(value, size))
            return 0
        except BaseException as error:
            failures.append(error)
            return -1

    def take(
        _context: int, key: bytes, value: Any, capacity: int, size: Any, timeout_ms: int
    ) -> int:
        try:
            data = bytes(store.get(key.decode(), timedelta(milliseconds=timeout_ms)))
            if len(data) > capacity:
                return -1
            ctypes.memmove(value, data, len(data))
            size[0] = len(data)
            return 0
        except TimeoutError:
            return 1
        except BaseException as error:
            failures.append(error)
            return -1

    yield _native.Store(None, _native.SET(put), _native.GET(take))


def _close_all() -> None:
    """Closes every communicator before the interpreter ends. Afterwards no thread of the library
    may write into tensors that are gone.
    """
    for handle in list(_living):
        handle.close()


def _drop_in_child() -> None:
    for living in list(_living):
        handle, living._handle = living._handle, None
        if handle is not None:
            _native.functions().forked(handle)
    _living.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_drop_in_child)
