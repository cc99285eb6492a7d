# SPDX-License-Identifier: Apache-2.0
"""A link whose rate is known."""

from __future__ import annotations

import subprocess


class Link:
    """Two network namespaces and a cable between them; what leaves either end is shaped."""

    def __init__(self, name: str) -> None:
        self.names = [f"{name}-{end}" for end in (0, 1)]
        self.addresses = ["192.0.2.1", "192.0.2.2"]

    def _ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    def up(self) -> None:
        for name in self.names:
            self._ip("netns", "add", name)
        self._ip(
            "-n",
            self.names[0],
            "link",
            "add",
            "wire",
            "type",
            "veth",
            "peer",
            "name",
            "wire",
            "netns",
            self.names[1],
        )
        for name, address in zip(self.names, self.addresses, strict=True):
            self._ip("-n", name, "address", "add", f"{address}/24", "dev", "wire")
            self._ip("-n", name, "link", "set", "wire", "up")
            self._ip("-n", name, "link", "set", "lo", "up")

    def rate(self, megabits: int) -> None:
        for name in self.names:
            shape = ["tbf", "rate", f"{megabits}mbit", "burst", "128kb", "latency", "1s"]
            subprocess.run(
                ["tc", "-n", name, "qdisc", "replace", "dev", "wire", "root", *shape], check=True
            )

    def down(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)
