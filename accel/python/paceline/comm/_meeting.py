# SPDX-License-Identifier: Apache-2.0
"""Where ranks find each other: the store of PyTorch's process groups, handed to the library."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from paceline.comm import _native

SIOCGIFADDR = 0x8915


class Members:
    """Of a process group: its ranks' numbers in the job, and this one's place among them."""

    def __init__(self, group: Any = None) -> None:
        module = dist.distributed_c10d
        if not dist.is_initialized():
            raise RuntimeError(
                "paceline.comm: there is no process group: call torch.distributed.init_process_group first"
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
        key = (id(self.store), self.numbers, what)
        _made[key] = _made.get(key, 0) + 1
        everyone = self.numbers == tuple(range(dist.get_world_size()))
        of = "all" if everyone else ",".join(map(str, self.numbers))
        return f"paceline/{what}/{os.environ.get('PACELINE_ATTEMPT', '0')}/{of}/{_made[key]}"


_made: dict[tuple[int, tuple[int, ...], str], int] = {}


def own_address() -> str:
    """Where peers reach this rank: the interface that gloo is told to use, else the pod's address, else the library's choice."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if interface:
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
            return socket.inet_ntoa(answer[20:24])
    return os.environ.get("PACELINE_POD_IP", "")


@contextlib.contextmanager
def as_store(store: Any, failures: list[BaseException]) -> Iterator[_native.Store]:
    """PyTorch's store as the library takes it. What the store raises is left in `failures`."""

    def put(_context: int, key: bytes, value: Any, size: int) -> int:
        try:
            store.set(key.decode(), ctypes.string_at(value, size))
            return 0
        except BaseException as error:
            failures.append(error)
            return -1

    def take(_context: int, key: bytes, value: Any, capacity: int, size: Any, timeout_ms: int) -> int:
        try:
            name = key.decode()
            began = time.monotonic()
            try:
                store.wait([name], timedelta(milliseconds=max(timeout_ms, 1)))
            except RuntimeError:  # the stores have no exception of their own for a time that is over
                if time.monotonic() - began >= timeout_ms / 1000:
                    return 1
                raise
            data = bytes(store.get(name))
            if len(data) > capacity:
                return -1
            ctypes.memmove(value, data, len(data))
            size[0] = len(data)
            return 0
        except BaseException as error:
            failures.append(error)
            return -1

    yield _native.Store(None, _native.SET(put), _native.GET(take))
