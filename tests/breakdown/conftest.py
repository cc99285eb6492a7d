# SPDX-License-Identifier: Apache-2.0
"""The fixtures of accel/tests (programs run as ranks, a receiver of rings), and a shaped link."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from links import Link
from programs import runtime, train

__all__ = ["link", "runtime", "train"]


@pytest.fixture
def link() -> Iterator[Link]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    ready = Link(f"paceline-{os.getpid()}")
    try:
        ready.up()
        yield ready
    finally:
        ready.down()
