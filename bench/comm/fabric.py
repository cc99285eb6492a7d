# SPDX-License-Identifier: Apache-2.0
"""Makes network namespaces that stand for hosts, with cables into one switch for each rail, and
runs a program's ranks on them. Both ends of a cable are shaped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from open_mpi import launched

HERE = Path(__file__).parent
PATIENCE = 1800  # seconds
NETWORKS = ("192.0.2", "198.51.100", "203.0.113")  # for documentation (RFC 5737), one for each rail


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def devices(rails: int) -> list[str]:
    """Of each host."""
    return [f"wire{rail}" for rail in range(rails)]


class Fabric:
    """Hosts as network namespaces around a switch for each rail; these share a namespace."""

    def __init__(self, hosts: int, rails: int = 1) -> None:
        self.switch = f"plc{os.getpid()}-switch"
        self.hosts = [f"plc{os.getpid()}-{host}" for host in range(hosts)]
        self.devices = devices(rails)

    def up(self) -> None:
        ip("netns", "add", self.switch)
        for host in self.hosts:
            ip("netns", "add", host)
            ip("-n", host, "link", "set", "lo", "up")
        for rail, wire in enumerate(self.devices):
            ip("-n", self.switch, "link", "add", "name", f"switch{rail}", "type", "bridge")
            ip("-n", self.switch, "link", "set", f"switch{rail}", "up")
            for number, host in enumerate(self.hosts):
                port = f"rail{rail}port{number}"
                ip(
                    "-n",
                    host,
                    "link",
                    "add",
                    "name",
                    wire,
                    "type",
                    "veth",
                    "peer",
                    port,
                    "netns",
                    self.switch,
                )
                ip("-n", host, "address", "add", f"{NETWORKS[rail]}.{number + 1}/24", "dev", wire)
                ip("-n", host, "link", "set", wire, "up")
                ip("-n", self.switch, "link", "set", port, "master", f"switch{rail}", "up")

    def addresses(self) -> list[str]:
        """Of each host, on the first rail."""
        return [f"{NETWORKS[0]}.{number + 1}" for number in range(len(self.hosts))]

    def rate(self, megabits: float) -> None:
        shape = ["tbf", "rate", f"{megabits}mbit", "burst", "256kb", "latency", "50ms"]
        for rail, wire in enumerate(self.devices):
            for number, host in enumerate(self.hosts):
                for space, device in ((host, wire), (self.switch, f"rail{rail}port{number}")):
                    subprocess.run(
                        ["tc", "-n", space, "qdisc", "replace", "dev", device, "root", *shape],
                        check=True,
                    )

    def down(self) -> None:
        for name in [*self.hosts, self.switch]:
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)


def run_ranks(
    fabric: Fabric, ranks: int, program: str, *words: str, by_mpi: bool = False
) -> list[Any]:
    """Starts all ranks of a program, or has Open MPI do so, and returns what each has written."""
    total = len(fabric.hosts) * ranks
    with tempfile.TemporaryDirectory(prefix="paceline-comm-") as folder:
        command = [
            sys.executable,
            str(HERE / program),
            "--ranks",
            str(total),
            "--folder",
            folder,
            *words,
        ]
        if by_mpi:
            commands = [launched(fabric.hosts, fabric.addresses(), fabric.devices, ranks, command)]
        else:
            commands = [
                ["ip", "netns", "exec", fabric.hosts[rank // ranks], *command, "--rank", str(rank)]
                for rank in range(total)
            ]
        processes = []
        try:
            processes += [subprocess.Popen(one) for one in commands]
            failed = [
                number for number, process in enumerate(processes) if process.wait(PATIENCE) != 0
            ]
        finally:
            for process in processes:
                process.terminate() if by_mpi else process.kill()  # it ends its ranks first
        if failed:
            raise SystemExit(
                "bench: the ranks failed" if by_mpi else f"bench: ranks {failed} failed"
            )
        return [
            json.loads((Path(folder) / f"rank-{rank}.json").read_text()) for rank in range(total)
        ]
