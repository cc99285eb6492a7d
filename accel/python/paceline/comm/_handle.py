# SPDX-License-Identifier: Apache-2.0
"""One communicator of libpaceline.so: how it is created, described and closed. Its subclass makes
the calls.
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

TIMEOUT = timedelta(minutes=30)  # of PyTorch's process groups on the CPU
HEARTBEAT_TIMEOUT = timedelta(seconds=10)

# Texts for the library's codes that come without one.
_REFUSALS = {_native.ESYSTEM: "the system refused memory or a thread"}

# A card's first line, and all that one needs which says that its rank does not come
# (accel/src/comm/bootstrap/peer_info.cpp). Written here: a rank may have no library.
_CARD = "paceline-comm 3"
_LONGEST = 4000  # bytes of a reason: a card has 16 KiB

_living: weakref.WeakSet[Handle] = weakref.WeakSet()
Self = TypeVar("Self", bound="Handle")
Call = TypeVar("Call", bound="Callable[..., Any]")


class Store(Protocol):
    """The store through which ranks find each other: small values that all of them see."""

    def set(self, key: str, value: bytes) -> None: ...

    def get(self, key: str, timeout: timedelta) -> bytes:
        """Raises TimeoutError if no rank sets the key within this time."""
        ...


def refuse(store: Store, name: str, rank: int, why: str) -> None:
    """For a rank that cannot make the communicator which the others make by this name. The others
    raise CommError at once, with this rank and the reason."""
    text = " ".join(why.split()).encode()[:_LONGEST].decode(errors="ignore")
    with contextlib.suppress(Exception):  # if the store is gone, the other ranks will fail too
        store.set(f"{name}/{rank}", f"{_CARD}\nrefusal={text}\n".encode())


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
    """For methods of a Handle that all ranks call and that block. If one raises, it tells the other
    ranks at once that this rank gave up, and why; otherwise they would wait. Only the first failure
    is told. A call with async_op=True does not block, so it tells nothing."""

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
    """Owns one communicator, and closes it. A forked child has none."""

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
        self._check(_native.functions().barrier(self._open()))

    def plan(self) -> str:
        """How all-reduces go; given as `plan` to another communicator of these ranks, they go so
        again, to the bit.
        """
        text = ctypes.create_string_buffer(16384)
        self._check(_native.functions().plan(self._open(), 0, 0, text, len(text)))
        return text.value.decode()

    def shape(self) -> str:
        """How many ranks each host has, and on how many network devices, where on several: "4,4",
        "4,4/2".
        """
        text = ctypes.create_string_buffer(16384)
        self._check(_native.functions().shape(self._open(), text, len(text)))
        return text.value.decode()

    @of_all_ranks
    def tune(self, known: str = "", budget: timedelta = timedelta(seconds=1)) -> str:
        """Measures which way of an all-reduce is quickest for which sizes, for about so long, and
        goes that way from now on; all ranks call it. `known`, of rank 0, is what an earlier call
        has returned: used instead of measuring if it fits.
        """
        text = ctypes.create_string_buffer(_native.TEXT)
        self._check(
            _native.functions().tune(
                self._open(), known.encode(), _milliseconds(budget), text, len(text)
            )
        )
        return text.value.decode()

    def abort(self, why: str) -> None:
        """Ends all calls, here and on all ranks, with a CommError that names this rank. From any
        thread.
        """
        _native.functions().abort(self._open(), why.encode())

    def close(self) -> None:
        """What is under way ends with an error on all ranks; close when all have done the same."""
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

    # -- of subclasses
    # ------------------------------------------------------------

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
    """Exceptions of the store are stored in `failures`."""

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
