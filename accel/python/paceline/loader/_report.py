# SPDX-License-Identifier: Apache-2.0
"""What became of each loader in this process, for paceline.explain(), and the lines that are said once. Holds no loader alive."""

from __future__ import annotations

import os
import weakref
from typing import Any

from paceline._inject import say

switch = "off (PACELINE_LOADER is not set)"
_said: set[str] = set()


def say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        say(text)


class Account:
    """Of one loader: how its batches came, or why PyTorch's own way was taken."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.iterators = 0
        self.in_slabs = 0
        self.in_messages = 0
        self.why = ""

    def add(self, exchange: Any) -> None:
        self.in_slabs += exchange.in_slabs
        self.in_messages += exchange.in_messages
        exchange.in_slabs = exchange.in_messages = 0

    def left(self, loader: Any, why: str) -> None:
        self.why = why
        if loader.num_workers > 0:
            say_once(f"a loader is PyTorch's own: {why}{_advice()}")

    def line(self) -> str:
        if self.why:
            return f"  {self.name}: PyTorch's own ({self.why})"
        return (
            f"  {self.name}: {self.iterators} iterators; ended ones brought {self.in_slabs} batches in slabs, "
            f"{self.in_messages} in messages or PyTorch's way"
        )


_accounts: weakref.WeakKeyDictionary[Any, Account] = weakref.WeakKeyDictionary()


def account_of(loader: Any) -> Account:
    try:
        account = _accounts.get(loader)
        if account is None:
            dataset = type(loader.dataset)
            account = _accounts[loader] = Account(f"loader of {dataset.__module__}.{dataset.__qualname__}")
        return account
    except Exception:  # a class that cannot be hashed, for instance
        return Account("loader")


def lines() -> list[str]:
    return [account.line() for account in _accounts.values()]


def _advice() -> str:
    """For PyTorch's way, which passes every batch through /dev/shm."""
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return "; there is no /dev/shm, which its workers need: mount an emptyDir with medium: Memory there"
    size = found.f_blocks * found.f_frsize
    if size >= 256 << 20:
        return ""
    return (
        f"; /dev/shm has {size >> 20} MiB, which its workers' batches may not fit into (they die of a bus error): "
        "mount an emptyDir with medium: Memory at /dev/shm"
    )
