# SPDX-License-Identifier: Apache-2.0
"""Accounts of the loaders in this process, for paceline.explain(), and the lines that are printed
once. An account keeps no loader alive, and outlives it.
"""

from __future__ import annotations

import collections
import itertools
import os
import weakref
from typing import Any

from paceline._core import contract, reports
from paceline._core.log import say_once

WAITS = 4096  # number of a loader's last batches whose waits are kept
switch = f"off ({contract.LOADER} is not set)"


class Account:
    """The account of one loader: how its batches came, or why PyTorch's own loader serves it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.iterators = 0
        self.in_slabs = 0
        self.in_messages = 0
        self.pinned = 0
        self.copies = ""  # why no batch is copied to the device early, or empty
        self.copied = 0
        self.copied_in_vain = 0
        self.why = ""
        self.why_no_prefetch = ""  # why the next epoch is not prefetched, or empty
        self.hits = 0
        self.misses = 0
        self.plan: Any = None  # what was decided of its workers (_workers/plan.py)
        self.batches = 0
        self.waits: collections.deque[float] = collections.deque(maxlen=WAITS)  # seconds
        # The exchanges of running iterators.
        self._open: weakref.WeakSet[Any] = weakref.WeakSet()

    def began(self, exchange: Any) -> None:
        self.why = ""
        self.iterators += 1
        self._open.add(exchange)

    def add(self, exchange: Any) -> None:
        self.in_slabs += exchange.in_slabs
        self.in_messages += exchange.in_messages
        self.pinned += exchange.pinned
        if exchange.copies is not None:
            self.copied += exchange.copies.hits
            self.copied_in_vain += exchange.copies.misses
            self.copies = exchange.copies.why
            exchange.copies.hits = exchange.copies.misses = 0
        self.hits += exchange.hits
        self.misses += exchange.misses
        exchange.in_slabs = exchange.in_messages = exchange.pinned = exchange.hits = (
            exchange.misses
        ) = 0

    def waited(self, seconds: float) -> None:
        """Notes that the program waited this long for a batch."""
        self.batches += 1
        self.waits.append(seconds)

    def left(self, loader: Any, why: str) -> None:
        self.why = why
        if loader.num_workers > 0:
            say_once(f"a loader is PyTorch's own: {why}{_advice()}")

    def told(self) -> dict[str, Any]:
        for exchange in list(self._open):
            self.add(exchange)
        return {
            "name": self.name,
            "state": "off" if self.why else "on",
            "reason": self.why,
            "iterators": self.iterators,
            "in_slabs": self.in_slabs,
            "in_messages": self.in_messages,
            "pinned": self.pinned,
            "copied": self.copied,
            "copied_in_vain": self.copied_in_vain,
            "copies_reason": self.copies,
            "prefetch_next_epoch": "off" if self.why_no_prefetch else "on",
            "prefetch_reason": self.why_no_prefetch,
            "prefetched_epochs": self.hits,
            "discarded_epochs": self.misses,
            **_measured([self]),
        }

    def line(self) -> str:
        return f"  {self.name}: {_text(self.told())}"


def _measured(accounts: list[Account]) -> dict[str, Any]:
    """Returns how long the program waited for the last batches of these accounts, in seconds."""
    waits = sorted(itertools.chain.from_iterable(account.waits for account in accounts))
    return {
        "batches": sum(account.batches for account in accounts),
        "median_wait_seconds": waits[len(waits) // 2] if waits else None,
        "p95_wait_seconds": waits[len(waits) * 95 // 100] if waits else None,
    }


def _text(told: dict[str, Any]) -> str:
    if told["state"] == "off":
        return f"PyTorch's own ({told['reason']})"
    prefetch = (
        f"{told['prefetched_epochs']} epochs prefetched, {told['discarded_epochs']} discarded"
    )
    if told["prefetch_next_epoch"] == "off":
        prefetch = f"the next epoch is not prefetched: {told['prefetch_reason']}"
    pinned = f", {told['pinned']} copied into pinned memory" if told["pinned"] else ""
    copies = ""
    if told["copied"] or told["copied_in_vain"]:
        copies = (
            f"; {told['copied']} tensors were copied to the device early, {told['copied_in_vain']}"
            " more in vain"
        )
    if told["copies_reason"]:
        copies += f"; no early copies to the device: {told['copies_reason']}"
    waits = ""
    if told["batches"]:
        median, p95 = told["median_wait_seconds"] * 1e3, told["p95_wait_seconds"] * 1e3
        waits = (
            f"; the program waited for {told['batches']} batches, median {median:.2f} ms, 95th"
            f" percentile {p95:.2f} ms"
        )
    return (
        f"{told['iterators']} iterators brought {told['in_slabs']} batches in slabs, "
        f"{told['in_messages']} in messages or PyTorch's way{pinned}{waits}; {prefetch}{copies}"
    )


class ImageAccount:
    """The account of one ImageShards: what its threads made."""

    def __init__(self, name: str, size: str) -> None:
        self.name, self.size = name, size
        self.batches = self.pictures = self.threads = 0
        self.decoding = 0.0  # processor seconds of the threads, in passes that have ended
        self._running = 0.0
        _images.append(self)

    def began(self, threads: int) -> None:
        self.threads = threads

    def made(self, pictures: int, decoding: float) -> None:
        self.batches += 1
        self.pictures += pictures
        self._running = decoding

    def ended(self, decoding: float) -> None:
        self.decoding, self._running = self.decoding + decoding, 0.0

    def told(self) -> dict[str, Any]:
        decoding = self.decoding + self._running
        each = (
            f", {decoding / self.pictures * 1e3:.2f} ms each in the JPEG decoder"
            if self.pictures
            else ""
        )
        return {
            "name": self.name,
            "state": "on",
            "reason": "",
            "batches": self.batches,
            "pictures": self.pictures,
            "threads": self.threads,
            "decoding_seconds": decoding,
            "text": (
                f"{self.pictures} of {self.size} in {self.batches} batches by {self.threads}"
                f" threads{each}"
            ),
        }


LIMIT = 64  # number of accounts kept; a program may make any number of loaders
_accounts: weakref.WeakKeyDictionary[Any, Account] = weakref.WeakKeyDictionary()
_all: collections.deque[Account] = collections.deque(maxlen=LIMIT)
_images: collections.deque[ImageAccount] = collections.deque(maxlen=LIMIT)


def account_of(loader: Any) -> Account:
    try:
        account = _accounts.get(loader)
        if account is None:
            dataset = type(loader.dataset)
            account = _accounts[loader] = Account(
                f"loader of {dataset.__module__}.{dataset.__qualname__}"
            )
            _all.append(account)
        return account
    except Exception:  # such as a loader class that cannot be hashed
        return Account("loader")


def accounts() -> list[Account]:
    """Returns the accounts of the last loaders."""
    return list(_all)


def seen() -> list[dict[str, Any]]:
    """Returns an entry for each kind of loader. Loaders of one dataset class with the same outcome
    share an entry, because programs make a loader for every epoch."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    alike: dict[tuple[str, ...], list[Account]] = {}
    for account in _all:
        told = account.told()
        key: tuple[str, ...] = (
            told["name"],
            told["reason"],
            told["prefetch_reason"],
            told["copies_reason"],
        )
        alike.setdefault(key, []).append(account)
        first = found.setdefault(key, told)
        if first is not told:
            for count in (
                "iterators",
                "in_slabs",
                "in_messages",
                "pinned",
                "copied",
                "copied_in_vain",
                "prefetched_epochs",
                "discarded_epochs",
            ):
                first[count] += told[count]
    for key, told in found.items():
        told.update(_measured(alike[key]))
        told["text"] = _text(told)
    return [*found.values(), *(images.told() for images in _images)]


def _advice() -> str:
    """Returns advice for PyTorch's own loader, which passes every batch through /dev/shm."""
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return (
            "; there is no /dev/shm, which its workers need: mount an emptyDir with medium: Memory"
            " there"
        )
    size = found.f_blocks * found.f_frsize
    if size >= 256 << 20:
        return ""
    return (
        f"; /dev/shm has {size >> 20} MiB, which its workers' batches may not fit into (they die of"
        " a bus error): mount an emptyDir with medium: Memory at /dev/shm"
    )


reports.register(reports.LOADERS, lambda: reports.Status(switch, seen()))
