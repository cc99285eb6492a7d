# SPDX-License-Identifier: Apache-2.0
"""CMake accepts the presets, and a workflow for daily work exists."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kind", ["configure", "build", "test", "workflow"])
def test_cmake_accepts_the_presets(kind: str) -> None:
    listed = subprocess.run(
        ["cmake", f"--list-presets={kind}", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert listed.returncode == 0, listed.stderr
    assert '"dev"' in listed.stdout
