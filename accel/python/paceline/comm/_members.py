# SPDX-License-Identifier: Apache-2.0
"""Which ranks form a group, and their store, from PyTorch's process groups."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from paceline._core.agreement import numbered
from paceline._core.environment import attempt


class Members:
    """Of a process group: its ranks' numbers in the job, and this one's place among them."""

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
        """Used once only, and the same on all members: they come here in the same order."""
        everyone = self.numbers == tuple(range(dist.get_world_size()))
        of = "all" if everyone else ",".join(map(str, self.numbers))
        return numbered(self.store, f"paceline/{what}/{attempt()}/{of}", self.rank)


class TorchStore:
    """PyTorch's store, as a Handle takes one."""

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
