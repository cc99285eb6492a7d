#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs pytest so that a failure can be read from the last lines of its output.

Everything a failed test has to show (traceback, captured output, the state of the cluster) goes
into a file below the results folder; the terminal gets the short traceback, the last lines of each
section and the file's path, and one line for each failure at the very end. usage:
scripts/pytest_suite.py RESULTS_FOLDER NAME PATH… (run with the interpreter whose packages are
tested)
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHOWN_LINES = 15


class ShortFailures:
    """A pytest plugin: keeps each failed report whole in a file, and shortens what is printed of
    it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """The terminal and the JUnit writer see the report after this."""
        if not report.failed:
            return
        file = self._folder / (
            re.sub(r"[^\w.-]+", "_", report.nodeid)[-120:] + f".{report.when}.log"
        )
        parts = [f"{report.nodeid} ({report.when})", report.longreprtext]
        parts += [f"--- {title} ---\n{text}" for title, text in report.sections]
        self._folder.mkdir(parents=True, exist_ok=True)
        file.write_text("\n\n".join(parts) + "\n", errors="replace")
        shorten(report.longrepr)
        report.sections = [
            (title, last_lines(text)) for title, text in report.sections if text.strip()
        ]
        shown = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
        report.sections.append(("all of it", f"{shown}"))


def shorten(shown: Any) -> None:
    """Keeps the first and last lines of a traceback whose message is pages long."""
    chain = getattr(shown, "chain", None) or [(getattr(shown, "reprtraceback", None), None, None)]
    for traceback, _, _ in chain:
        for entry in getattr(traceback, "reprentries", []):
            lines = getattr(entry, "lines", [])
            if len(lines) > 3 * SHOWN_LINES:
                left = f"… {len(lines) - 2 * SHOWN_LINES} lines, all in the file named below"
                entry.lines = [*lines[:SHOWN_LINES], left, *lines[-SHOWN_LINES:]]


def last_lines(text: str) -> str:
    lines = text.rstrip().splitlines()
    if len(lines) <= SHOWN_LINES:
        return "\n".join(lines)
    return "\n".join([f"… {len(lines) - SHOWN_LINES} lines before", *lines[-SHOWN_LINES:]])


def main() -> int:
    if len(sys.argv) < 4:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    results, name, paths = Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:]
    # As `python -m pytest` has it: the folder of the call, not the one of this file.
    sys.path[0] = str(Path.cwd())
    # With either of these pytest prints a failure's whole message in the line that is to name it.
    for variable in ("CI", "BUILD_NUMBER"):
        os.environ.pop(variable, None)
    options = [
        "-q",
        "-rfE",
        "--tb=short",
        "--durations=5",
        f"--junitxml={results / (name + '.xml')}",
    ]
    return int(
        pytest.main([*options, *paths], plugins=[ShortFailures(results / f"{name}-failures")])
    )


if __name__ == "__main__":
    sys.exit(main())
