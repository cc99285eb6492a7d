# SPDX-License-Identifier: Apache-2.0
"""Finds which ranks share a host, through the store of PyTorch's process groups, and whether NCCL
joins hosts by TCP. _hierarchy's users need it. Every rank reads the same values and reaches the
same result."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from paceline.comm._members import Members


@dataclass(frozen=True)
class PeerInfo:
    """What one rank tells the others. `asked`: whether its job asks for sums by way of hosts, by
    name or by a compression. `why`: why this rank cannot; empty if it can. `rdma`: as
    `why_not_tcp`. `buckets`: bytes of the model's buckets; the first rank's count.
    """

    host: str
    compression: str
    asked: bool
    why: str = ""
    rdma: str = ""
    buckets: Sequence[int] = ()


def exchange(members: Members, name: str, info: PeerInfo, timeout: timedelta) -> list[PeerInfo]:
    """Returns the peer infos of all ranks. Raises the store's error if one does not come within
    `timeout`.
    """
    names = [f"{name}/card/{rank}" for rank in range(members.ranks)]
    members.store.set(names[members.rank], json.dumps(vars(info)))
    members.store.wait(names, timeout)
    return [PeerInfo(**json.loads(bytes(members.store.get(one)))) for one in names]


@dataclass(frozen=True)
class Layout:
    """The ranks of each host in ascending order. Hosts are ordered by their first rank."""

    hosts: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(names: list[str]) -> Layout:
        """Makes a layout from each rank's host."""
        found: dict[str, list[int]] = {}
        for rank, name in enumerate(names):
            found.setdefault(name, []).append(rank)
        return Layout(tuple(tuple(ranks) for ranks in found.values()))

    @property
    def channels(self) -> tuple[tuple[int, ...], ...]:
        """The ranks that own a shard each: channel i has the i-th rank of each host. There are as
        many as the smallest host has ranks.
        """
        return tuple(zip(*self.hosts))

    def why_not(self) -> str:
        """Returns an empty text if sums can go by hosts, else why not."""
        if len(self.hosts) == 1:
            return "one host, so there is no leg between hosts"
        if all(len(ranks) == 1 for ranks in self.hosts):
            return "one rank on every host, so there is nothing to sum inside a host"
        return ""

    def __str__(self) -> str:
        return ",".join(str(len(ranks)) for ranks in self.hosts)


def own_host() -> str:
    """Returns NCCL_HOSTID, or else the running kernel and the network namespace. By the latter,
    ranks of different pods are on different hosts.
    """
    told = os.environ.get("NCCL_HOSTID", "")
    if told:
        return told
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{Path('/proc/self/ns/net').readlink()}"


def why_not_tcp(root: Path = Path("/")) -> str:
    """Returns an empty text if NCCL reaches other hosts by TCP from here, else what it seems to use
    instead. `root`: where /sys, /dev and /proc are. Call it once NCCL has made a communicator,
    because it loads its plugins then.
    """
    net = os.environ.get("NCCL_NET", "")
    if net.lower() == "socket":
        return ""
    if net:
        return f"NCCL_NET={net}"
    plugin = os.environ.get("NCCL_NET_PLUGIN", "")
    if plugin not in ("", "none"):
        return f"NCCL_NET_PLUGIN={plugin}"
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/maps").read_text().splitlines():
            name = line.rpartition("/")[2]
            if name.startswith("libnccl-net"):  # that of EFA is libnccl-net-ofi.so, or just .so
                return f"NCCL's network plugin {name}"
    # Without its device file, a port of the host can be seen in a container and not used.
    if os.environ.get("NCCL_IB_DISABLE", "") in ("", "0") and any(
        root.glob("dev/infiniband/uverbs*")
    ):
        for state in sorted(root.glob("sys/class/infiniband/*/ports/*/state")):
            with contextlib.suppress(OSError):
                if "ACTIVE" in state.read_text():
                    return f"RDMA device {state.parts[-4]}"
    return ""
