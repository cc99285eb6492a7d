# SPDX-License-Identifier: Apache-2.0
"""docs/designs/complaints.md names tests that exist, and each complaint where it was read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "designs" / "complaints.md"
NAME = re.compile(r"`([\w./-]+\.(?:py|cpp))::([\w.]+)`")
LINK = re.compile(r"\]\(https://github\.com/[\w.-]+/[\w.-]+/issues/\d+\)")


def defines(text: str, name: str) -> bool:
    """Whether the source has a test of this name: SUITE.NAME of GoogleTest, or a function."""
    suite, dot, test = name.partition(".")
    if dot:
        return re.search(rf"^TEST(_[FP])?\({suite},\s*{test}\)", text, re.MULTILINE) is not None
    return re.search(rf"^def {name}\(", text, re.MULTILINE) is not None


def rows(page: str) -> Iterator[str]:
    """The lines of its tables, without their heads."""
    for line in page.splitlines():
        if line.startswith("| ") and not line.startswith("| complaint |"):
            yield line


def missing(page: str, root: Path) -> list[str]:
    """The tests that a page names and the repository does not have."""
    return [
        f"{path}::{name}"
        for path, name in NAME.findall(page)
        if not (root / path).is_file() or not defines((root / path).read_text(), name)
    ]


def test_each_test_exists() -> None:
    page = PAGE.read_text()
    shown, _, _ = page.partition("## Not shown by a test")
    assert [row for row in rows(shown) if not NAME.search(row)] == []
    assert [row for row in rows(page) if not LINK.search(row)] == []
    assert len(list(rows(shown))) >= 25
    assert missing(page, ROOT) == []


def test_a_test_that_does_not_exist_is_named(tmp_path: Path) -> None:
    (tmp_path / "one.cpp").write_text("TEST_F(Suite, Runs) {}\nTEST(Suite, RunsFast) {}\n")
    (tmp_path / "one.py").write_text("def test_runs(case: int) -> None: ...\n")
    page = "`one.cpp::Suite.Runs` `one.cpp::Suite.Run` `one.py::test_runs` `one.py::test_run` `no.py::test_it`"
    assert missing(page, tmp_path) == ["one.cpp::Suite.Run", "one.py::test_run", "no.py::test_it"]
