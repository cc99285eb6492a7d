# SPDX-License-Identifier: Apache-2.0
"""The fixtures of accel/tests (programs run as ranks, a receiver of rings), and a link whose rate is known."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

RUNTIME_TESTS = Path(__file__).resolve().parents[2] / "accel" / "tests"
sys.path.insert(0, str(RUNTIME_TESTS))
_spec = importlib.util.spec_from_file_location("runtime_fixtures", RUNTIME_TESTS / "conftest.py")
assert _spec is not None and _spec.loader is not None
fixtures = importlib.util.module_from_spec(_spec)
sys.modules["runtime_fixtures"] = fixtures
_spec.loader.exec_module(fixtures)
runtime, train = fixtures.runtime, fixtures.train


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
            "-n", self.names[0], "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", self.names[1]
        )
        for name, address in zip(self.names, self.addresses, strict=True):
            self._ip("-n", name, "address", "add", f"{address}/24", "dev", "wire")
            self._ip("-n", name, "link", "set", "wire", "up")
            self._ip("-n", name, "link", "set", "lo", "up")

    def rate(self, megabits: int) -> None:
        for name in self.names:
            shape = ["tbf", "rate", f"{megabits}mbit", "burst", "128kb", "latency", "1s"]
            subprocess.run(["tc", "-n", name, "qdisc", "replace", "dev", "wire", "root", *shape], check=True)

    def down(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)


@contextmanager
def made(name: str) -> Iterator[Link]:
    link = Link(name)
    try:
        link.up()
        yield link
    finally:
        link.down()


@pytest.fixture
def link() -> Iterator[Link]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    with made(f"paceline-{os.getpid()}") as ready:
        yield ready
