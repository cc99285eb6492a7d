# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from fake_device import BEGIN
from programs import Train


@pytest.fixture
def on_fake(train_by_fork: Train, fake_device: dict[str, str]) -> Train:
    def run(program: str, **extra: str) -> None:
        result = train_by_fork(BEGIN + program, **{**fake_device, **extra})
        assert result.code == 0, result.output
        assert "reached the end" in result.output, result.output

    return run  # type: ignore[return-value]
