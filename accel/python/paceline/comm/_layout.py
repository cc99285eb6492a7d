# SPDX-License-Identifier: Apache-2.0
"""Finds which ranks share a host, through the store of PyTorch's process groups. Every rank reads
the same values and so reaches the same result."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from paceline.comm._members import Members


@dataclass(frozen=True)
class Card:
    """Of one rank. `asked`: for the way by hosts, by its name or that of a compression; `why`: for
    what reason it cannot, or nothing.
    """

    host: str
    compression: str
    asked: bool
    why: str = ""


def exchange(members: Members, name: str, card: Card, timeout: timedelta) -> list[Card]:
    """The cards of all ranks. Raises the store's error where one does not come within `timeout`."""
    names = [f"{name}/card/{rank}" for rank in range(members.ranks)]
    members.store.set(names[members.rank], json.dumps(vars(card)))
    members.store.wait(names, timeout)
    return [Card(**json.loads(bytes(members.store.get(one)))) for one in names]


@dataclass(frozen=True)
class Layout:
    """The ranks of each host, in their order, hosts by their first rank."""

    hosts: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(names: list[str]) -> Layout:
        """`names`: each rank's host."""
        found: dict[str, list[int]] = {}
        for rank, name in enumerate(names):
            found.setdefault(name, []).append(rank)
        return Layout(tuple(tuple(ranks) for ranks in found.values()))

    @property
    def channels(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each place that every host has, one of each host: they own a shard each."""
        return tuple(zip(*self.hosts))

    def why_not(self) -> str:
        """Returns an empty text if sums can go by hosts, else why not."""
        if len(self.hosts) == 1:
            return "one host, with no wire to spare"
        if all(len(ranks) == 1 for ranks in self.hosts):
            return "one rank on every host, with nothing to add up inside"
        return ""

    def __str__(self) -> str:
        return ",".join(str(len(ranks)) for ranks in self.hosts)


def own_host() -> str:
    """What NCCL is told to take for a host, else the running kernel and the network namespace:
    ranks of different pods are on different hosts.
    """
    told = os.environ.get("NCCL_HOSTID", "")
    if told:
        return told
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{Path('/proc/self/ns/net').readlink()}"
