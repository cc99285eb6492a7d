# SPDX-License-Identifier: Apache-2.0
"""Puts the built package on sys.path, and offers the fixtures of early copies.

PyTorch is imported first: if it found the package, its entry point would accelerate this process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)
BUILD = Path(os.environ.get("PACELINE_BUILD_DIR", Path(__file__).parents[3] / "build" / "release"))
sys.path.insert(0, str(BUILD / "runtime" / "python"))

from device_loaders import cuda, patched  # noqa: E402 - it imports the package

__all__ = ["cuda", "patched"]


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch terminates workers that take longer than this to end, as on a busy machine."""
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 60)
