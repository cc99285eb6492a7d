# SPDX-License-Identifier: Apache-2.0
"""Adds up JUnit files, as pytest, ctest and GoogleTest write them, and says each failure in one
line.

Pure but for reading the files. A file that is cut short counts as a failure that names it.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

LINE = 240
# The lines of a program's output that say why: GoogleTest's, our own CASE checks', the sanitizers',
# a signal's.
CAUSE = re.compile(
    r"(: Failure$|^unknown file: Failure|ERROR: \w*Sanitizer|WARNING: ThreadSanitizer|runtime"
    r" error:|check failed|CHECK|"
    r"terminate called|Segmentation fault|Assertion .* failed|\*\*\*Timeout)"
)


@dataclass
class Counts:
    """What the JUnit files of one suite say."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)

    def fail(self, why: str) -> None:
        """Counts one more failure and keeps its reason for the end."""
        self.failed += 1
        self.failures.append(why)


def one_line(text: str) -> str:
    """The text without its line breaks, cut where a reader stops."""
    flat = " ".join(text.split())
    return flat if len(flat) <= LINE else flat[: LINE - 1] + "…"


def cause(output: str) -> str:
    """The first line of a program's output that says why it failed, with the lines that belong to
    it; else the last line.
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if CAUSE.search(line):
            return one_line(" ".join(lines[number : number + 4]))
    return one_line(lines[-1]) if lines else ""


def _why(case: ElementTree.Element) -> str:
    found = case.find("failure")
    if found is None:
        found = case.find("error")
    message = (found.get("message") or "") if found is not None else ""
    # ctest says only that a test failed; why stands in the output. GoogleTest gives place and
    # comparison as the message.
    if message.strip() in (
        "",
        "Failed",
        "Timeout",
        "Failed (Timeout)",
        "SEGFAULT",
        "Subprocess aborted",
    ):
        output = case.findtext("system-out") or (found.text if found is not None else None) or ""
        said = cause(output)
        return f"{message.strip() or 'failed'}: {said}" if said else message.strip()
    return one_line(message)


def read_results(results: Path) -> Counts:
    """Adds up the JUnit files below a folder."""
    counts = Counts()
    for file in sorted(results.glob("**/*.xml")):
        try:
            cases = list(ElementTree.parse(file).iter("testcase"))
        except ElementTree.ParseError as error:
            counts.fail(
                f"{file.name} is cut short ({error}): the run was killed or the disk is full"
            )
            continue
        for case in cases:
            name = f"{case.get('classname', '')}.{case.get('name', '')}".strip(".")
            tags = {child.tag for child in case}
            status = case.get("status", "run")
            if tags & {"failure", "error"} or status == "fail":
                why = _why(case)
                counts.fail(f"{name}: {why}" if why else name)
            elif "skipped" in tags or status in {"notrun", "disabled"}:
                counts.skipped += 1
            else:
                counts.passed += 1
    return counts


def shown_failures(results: Path, lines: int = 15) -> list[str]:
    """For each failed case of a folder's JUnit files: its name and the end of its output, for
    suites whose runner shows all or nothing.
    """
    shown: list[str] = []
    for file in sorted(results.glob("**/*.xml")):
        try:
            cases = list(ElementTree.parse(file).iter("testcase"))
        except ElementTree.ParseError:
            continue
        for case in cases:
            if (
                case.find("failure") is None
                and case.find("error") is None
                and case.get("status") != "fail"
            ):
                continue
            output = [
                line for line in (case.findtext("system-out") or "").splitlines() if line.strip()
            ]
            shown.append(
                f"--- {case.get('name', '')}: the last of {len(output)} lines, all in {file.name}"
            )
            shown += output[-lines:]
    return shown
