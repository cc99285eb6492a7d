# SPDX-License-Identifier: Apache-2.0
"""Reads the JUnit files of pytest, ctest and GoogleTest: counts, and each failure in short.

The standard library parses them, since scripts/test runs before any package is installed. A file
that is cut short counts as a failure that names it.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

LINE = 240
# At each end of a text that is too long to show.
SHOWN_LINES = 15
# The lines of a program's output that name the cause: those of GoogleTest, of our own CASE checks,
# of the sanitizers and of signals.
CAUSE = re.compile(
    r"(: Failure$|^unknown file: Failure|ERROR: \w*Sanitizer|WARNING: ThreadSanitizer|runtime"
    r" error:|check failed|CHECK|"
    r"terminate called|Segmentation fault|Assertion .* failed|\*\*\*Timeout)"
)


@dataclass
class Counts:
    """The cases of one suite."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)

    def fail(self, why: str) -> None:
        """Counts one more failure and keeps its reason for the end."""
        self.failed += 1
        self.failures.append(why)


def one_line(text: str) -> str:
    """The text without its line breaks. Of a long one its two ends, LINE characters each: pytest
    gives the message first and what it compared last.
    """
    flat = " ".join(text.split())
    return flat if len(flat) <= 2 * LINE else f"{flat[:LINE]} … {flat[-LINE:]}"


def cause(output: str) -> str:
    """The first line that names a cause, with the three lines after it; else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if CAUSE.search(line):
            return one_line(" ".join(lines[number : number + 4]))
    return one_line(lines[-1]) if lines else ""


def _failure(case: ElementTree.Element) -> ElementTree.Element | None:
    found = case.find("failure")
    return case.find("error") if found is None else found


def _why(case: ElementTree.Element) -> str:
    found = _failure(case)
    message = (found.get("message") or "").strip() if found is not None else ""
    # ctest's message is a word or two, such as "Failed" or "Subprocess aborted". The cause is in
    # the output.
    if len(message.split()) > 2:
        return one_line(message)
    said = cause(case.findtext("system-out") or (found.text if found is not None else "") or "")
    return ": ".join(part for part in (message or "failed", said) if part)


def _cases(file: Path, counts: Counts) -> list[ElementTree.Element]:
    try:
        return list(ElementTree.parse(file).iter("testcase"))
    except ElementTree.ParseError as error:
        counts.fail(f"{file.name} is cut short ({error}): the run was killed or the disk is full")
        return []


def read_results(results: Path) -> Counts:
    """Adds up the JUnit files below a folder."""
    counts = Counts()
    for file in sorted(results.glob("**/*.xml")):
        for case in _cases(file, counts):
            if _failure(case) is not None:
                name = f"{case.get('classname', '')}.{case.get('name', '')}".strip(".")
                counts.fail(f"{name}: {_why(case)}")
            elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
                counts.skipped += 1
            else:
                counts.passed += 1
    return counts


def _ends(text: str) -> Iterator[str]:
    """The first and last lines of a text."""
    lines = [line for line in text.splitlines() if line.strip()]
    left = len(lines) - 2 * SHOWN_LINES
    yield from lines if left <= 0 else lines[:SHOWN_LINES]
    if left > 0:
        yield f"… {left} lines"
        yield from lines[-SHOWN_LINES:]


def shown_failures(file: Path) -> list[str]:
    """For each failed case of a JUnit file: its name, and both ends of its traceback and output."""
    shown: list[str] = []
    for case in _cases(file, Counts()) if file.is_file() else []:
        found = _failure(case)
        if found is None:
            continue
        shown.append(f"--- {case.get('name', '')} (all of it is in {file})")
        for text in (found.text, case.findtext("system-out"), case.findtext("system-err")):
            shown += _ends(text or "")
    return shown
