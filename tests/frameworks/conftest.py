# SPDX-License-Identifier: Apache-2.0
"""Where the built programs are, and the table of what was run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cases import HEAD, rows
from jobs import ROOT


@pytest.fixture(scope="session")
def build() -> Path:
    folder = Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release"))
    for name in ("bin/paceline", "bin/paceline-launcher", "runtime/lib/libpaceline.so"):
        assert (folder / name).exists(), f"{folder / name} is not built: scripts/build release"
    return folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table as docs/frameworks.md has it."""
    for row in [HEAD, ["---"] * len(HEAD), *rows] if rows else []:
        terminalreporter.write_line(f"| {' | '.join(row)} |")
