# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the communicator's tests."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from programs import Train


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keeps what one program has measured for the next one of as many ranks."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def train(train_by_fork: Train, cache: Path) -> Train:
    return functools.partial(train_by_fork, XDG_CACHE_HOME=str(cache))
