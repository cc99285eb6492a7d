# SPDX-License-Identifier: Apache-2.0
"""Network namespaces as hosts, each with a cable into one switch, and the ranks of a program on them. What leaves either end of a cable
is shaped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


class Fabric:
    """Hosts as network namespaces around a switch, which is one too."""

    def __init__(self, hosts: int) -> None:
        self.switch = f"plc{os.getpid()}-switch"
        self.hosts = [f"plc{os.getpid()}-{host}" for host in range(hosts)]

    def up(self) -> None:
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "name", "switch", "type", "bridge")
        ip("-n", self.switch, "link", "set", "switch", "up")
        for number, host in enumerate(self.hosts):
            ip("netns", "add", host)
            ip("-n", host, "link", "add", "name", "wire", "type", "veth", "peer", f"port{number}", "netns", self.switch)
            ip("-n", host, "address", "add", f"192.0.2.{number + 1}/24", "dev", "wire")
            ip("-n", host, "link", "set", "lo", "up")
            ip("-n", host, "link", "set", "wire", "up")
            ip("-n", self.switch, "link", "set", f"port{number}", "master", "switch", "up")

    def rate(self, megabits: float) -> None:
        shape = ["tbf", "rate", f"{megabits}mbit", "burst", "256kb", "latency", "50ms"]
        for number, host in enumerate(self.hosts):
            for space, device in ((host, "wire"), (self.switch, f"port{number}")):
                subprocess.run(["tc", "-n", space, "qdisc", "replace", "dev", device, "root", *shape], check=True)

    def down(self) -> None:
        for name in [*self.hosts, self.switch]:
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)


def run_ranks(fabric: Fabric, ranks: int, program: str, *words: str) -> list[Any]:
    """Starts all ranks of a program and returns what each has written."""
    total = len(fabric.hosts) * ranks
    with tempfile.TemporaryDirectory(prefix="paceline-comm-") as folder:
        common = ["--ranks", total, "--folder", folder, *words]
        processes = []
        try:
            for rank in range(total):
                space = fabric.hosts[rank // ranks]
                command = ["ip", "netns", "exec", space, sys.executable, HERE / program, "--rank", rank, *common]
                processes.append(subprocess.Popen([*map(str, command)]))
            failed = [rank for rank, process in enumerate(processes) if process.wait(600) != 0]
        finally:
            for process in processes:
                process.kill()
        if failed:
            raise SystemExit(f"bench: ranks {failed} failed")
        return [json.loads((Path(folder) / f"rank-{rank}.json").read_text()) for rank in range(total)]
