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

SIOCGIFFLAGS, SIOCGIFADDR = 0x8913, 0x8915
IFF_UP, IFF_LOOPBACK = 0x1, 0x8
MOST_ADDRESSES = 16  # that a card holds


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
    """Where peers reach this rank: the devices that PACELINE_SOCKET_IFNAME names, else those that gloo or NCCL are told to use, whichever
    are more, else the pod's address, else the library's choice. Several addresses are separated by commas."""
    ours = os.environ.get("PACELINE_SOCKET_IFNAME", "")
    if ours:
        found = addresses_of(ours)
        if not found:
            there = ", ".join(name for name, _, _ in _devices()) or "none"
            raise ValueError(
                f"PACELINE_SOCKET_IFNAME: '{ours}' names no network device that is up and has an IPv4 address; "
                f"there are: {there}"
            )
        return ",".join(found)
    gloo, nccl = os.environ.get("GLOO_SOCKET_IFNAME", ""), os.environ.get("NCCL_SOCKET_IFNAME", "")
    found = []
    with contextlib.suppress(OSError):  # a sandbox that tells no devices
        # The launcher sets both to the pod's own device, so a program's own list may be either.
        found = max(addresses_of("=" + gloo), addresses_of(nccl), key=len)
    # "^lo", as many set it for NCCL, may name more than a rank has use for.
    return ",".join(found[:MOST_ADDRESSES]) or os.environ.get("PACELINE_POD_IP", "")


def why_no_address() -> str:
    """Empty where there is one."""
    try:
        own_address()
    except ValueError as error:
        return str(error)
    except OSError as error:
        return f"PACELINE_SOCKET_IFNAME: the network devices cannot be listed here: {error}"
    return ""


def addresses_of(names: str) -> list[str]:
    """Of the devices that NCCL_SOCKET_IFNAME would mean: "eth" all that begin so, "=eth0,eth1" these, "^lo,docker" all but these and
    loopback. In the order of the words."""
    but, rest = names.startswith("^"), names[names.startswith("^") :]
    whole, words = rest.startswith("="), [word for word in rest.lstrip("=").split(",") if word]

    def named(device: str, word: str) -> bool:
        return device == word if whole else device.startswith(word)

    devices = _devices() if words else []
    if but:
        return [
            address
            for device, address, loopback in devices
            if not loopback and not any(named(device, word) for word in words)
        ]
    return list(dict.fromkeys(address for word in words for device, address, _ in devices if named(device, word)))


def _devices() -> list[tuple[str, str, bool]]:
    """Of this host: name, IPv4 address, and whether it is loopback, of those that are up and have one."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, device in socket.if_nameindex():
            request = struct.pack("256s", device.encode()[:15])
            with contextlib.suppress(OSError):  # gone meanwhile, or without an address
                flags = struct.unpack_from("H", fcntl.ioctl(probe, SIOCGIFFLAGS, request), 16)[0]
                address = socket.inet_ntoa(fcntl.ioctl(probe, SIOCGIFADDR, request)[20:24])
                if flags & IFF_UP:
                    found.append((device, address, bool(flags & IFF_LOOPBACK)))
    return found


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
