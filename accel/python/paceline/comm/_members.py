# SPDX-License-Identifier: Apache-2.0
"""Reads from PyTorch's process groups which ranks form a group, and finds their store."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from paceline._core.agreement import numbered
from paceline._core.environment import attempt
from paceline.comm._handle import refuse


class Members:
    """The ranks of a process group, by their numbers in the job, and this rank's own place."""

    def __init__(self, group: Any = None) -> None:
        module = dist.distributed_c10d
        if not dist.is_initialized():
            raise RuntimeError(
                "paceline.comm: there is no process group: call"
                " torch.distributed.init_process_group first"
            )
        self.group = module._get_default_group() if group is None else group
        self.rank = dist.get_rank(self.group)
        if self.rank < 0:
            raise ValueError("paceline.comm: this rank is not in the process group that was given")
        self.ranks = dist.get_world_size(self.group)
        self.store = module._get_default_store()
        self.numbers = tuple(module.get_process_group_ranks(self.group))

    def next_name(self, what: str) -> str:
        """Returns a name that is used once and is the same on all members. They call it in the same
        order.
        """
        everyone = self.numbers == tuple(range(dist.get_world_size()))
        of = "all" if everyone else ",".join(map(str, self.numbers))
        return numbered(self.store, f"paceline/{what}/{attempt()}/{of}", self.rank)


class TorchStore:
    """PyTorch's store with the interface that Handle takes."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)

    def get(self, key: str, timeout: timedelta) -> bytes:
        began = time.monotonic()
        try:
            self._store.wait([key], max(timeout, timedelta(milliseconds=1)))
        except RuntimeError:  # the stores have no exception type of their own for a timeout
            if time.monotonic() - began >= timeout / timedelta(seconds=1):
                raise TimeoutError(key) from None
            raise
        return bytes(self._store.get(key))


def refuse_to_join(group: Any, why: str) -> None:
    """Publishes why this rank cannot make the Communicator that the other ranks of `group` make now
    without a name. They raise CommError at once, with this rank and the reason."""
    members = Members(group)
    refuse(TorchStore(members.store), members.next_name("comm"), members.rank, why)
