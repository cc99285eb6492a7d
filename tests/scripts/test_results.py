# SPDX-License-Identifier: Apache-2.0
"""A failure is told in one line by the JUnit files of every runner, and a long one by its first and
last lines.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pytest import raises
from testing.processes import Failure, lane
from testing.results import LINE, cause, read_results, shown_failures
from testing.suites import pytest

CTEST = """<testsuite>
<testcase name="Queue.Drops" classname="Queue.Drops" status="fail"><failure message="Failed"/><system-out>[ RUN ] Queue.Drops
{noise}/src/queue_test.cpp:12: Failure
Expected equality of these values:
  dropped
    Which is: 0
[  FAILED  ] Queue.Drops</system-out></testcase>
<testcase name="Queue.Ends" classname="Queue.Ends" status="run"><system-out>ok</system-out></testcase>
<testcase name="Queue.Later" classname="Queue.Later" status="notrun"/>
</testsuite>"""
GTEST = """<testsuites><testsuite name="Api"><testcase name="Watch" classname="Api" status="run">
<failure message="watch_test.cpp:9&#x0A;Value of: seen&#x0A;  Actual: false"/></testcase></testsuite></testsuites>"""


def test_ctest_says_why_from_its_output(tmp_path: Path) -> None:
    (tmp_path / "ctest.xml").write_text(CTEST.format(noise="noise\n" * 500))
    counts = read_results(tmp_path)
    assert (counts.passed, counts.failed, counts.skipped) == (1, 1, 1)
    (line,) = counts.failures
    assert line.startswith("Queue.Drops")
    assert (
        "queue_test.cpp:12: Failure Expected equality of these values: dropped Which is: 0" in line
    )
    shown = shown_failures(tmp_path / "ctest.xml")
    assert len(shown) == 32
    assert shown[-1] == "[  FAILED  ] Queue.Drops"


def test_googletest_gives_its_message_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "conformance.xml").write_text(GTEST)
    assert read_results(tmp_path).failures == [
        "Api.Watch: watch_test.cpp:9 Value of: seen Actual: false"
    ]


def test_a_file_cut_short_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(GTEST[:60])
    (why,) = read_results(tmp_path).failures
    assert "a.xml is cut short" in why


def test_sanitizer_reports_are_the_cause() -> None:
    said = (
        "[ RUN ] x\n==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x1\nREAD of"
        " size 8\n" + "#1 frame\n" * 90
    )
    assert cause(said).startswith("==7==ERROR: AddressSanitizer: heap-use-after-free")
    both = cause("a" + "x" * 5000 + "z")
    assert len(both) == 2 * LINE + 3 and both.startswith("ax") and both.endswith("xz")
    assert cause("one\n\nlast\n") == "last"
    assert cause("") == ""


def test_a_long_failure_is_whole_in_a_file_and_short_on_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "test_long.py").write_text(
        "def test_long():\n    print(*(f'captured {n}' for n in range(500)), sep='\\n')\n    raise"
        " AssertionError('the pods did not start\\n' + '\\n'.join(f'state {n}' for n in"
        " range(300)))\ndef test_good():\n    pass\n"
    )
    results = tmp_path / "results"
    results.mkdir()
    lane.output = tmp_path / "terminal"
    try:
        pytest(results, sys.executable, "long", str(tmp_path / "test_long.py"))
        lines = lane.output.read_text().splitlines()
    finally:
        lane.output = None
    assert len(lines) < 90
    assert any("AssertionError: the pods did not start" in line for line in lines)
    assert "captured 499" in lines
    assert "captured 30" not in lines
    assert "long: 1 failed, 1 passed" in lines[-1]
    junit = results / "long.xml"
    assert str(junit) in lines[0]
    for whole in (junit.read_text(), (results / "long.log").read_text()):
        assert "captured 30\n" in whole
        assert "state 150" in whole
    counts = read_results(results)
    assert (counts.passed, counts.failed) == (1, 1)
    assert ".test_long: AssertionError: the pods did not start state 0" in counts.failures[0]


def test_a_runner_that_ends_otherwise_is_a_failure_of_the_suite(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("")
    lane.output = tmp_path / "terminal"
    try:
        with raises(Failure, match="ended with 5"):
            pytest(tmp_path, sys.executable, "empty", str(tmp_path / "empty.py"))
    finally:
        lane.output = None
