# SPDX-License-Identifier: Apache-2.0
"""linting.sizes names long functions, sources and full folders, with a stand-in for lizard."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest


def analyze(name: str, text: str) -> SimpleNamespace:
    """One function that is as long as its file."""
    function = SimpleNamespace(name=Path(name).name, start_line=1, length=text.count("\n"))
    return SimpleNamespace(function_list=[function])


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    stand_in = SimpleNamespace(analyze_file=SimpleNamespace(analyze_source_code=analyze))
    monkeypatch.setitem(sys.modules, "lizard", stand_in)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tmp_path


def complaints(root: Path, files: dict[str, str]) -> list[str]:
    from linting.sizes import complaints

    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return list(complaints(root))


def test_what_is_within_the_limits_is_accepted(tree: Path) -> None:
    files = {f"src/f{n}.cpp": "\n" * 80 for n in range(25)}
    fixtures = {f"tests/fixtures/f{n}": "\n" * 900 for n in range(40)}
    made = {"src/made/names.hpp": "// Made by scripts/contract." + "\n" * 900}
    assert complaints(tree, files | fixtures | made | {"docs/long.md": "\n" * 900}) == []


def test_long_functions_sources_and_full_folders_are_named(tree: Path) -> None:
    files = {
        "src/a.cpp": "\n" * 401,
        "tests/b.py": "\n" * 151,
        "scripts/c": "#!/usr/bin/env python3" + "\n" * 81,
        "scripts/d": "#!/usr/bin/env bash" + "\n" * 401,
    }
    found = complaints(tree, files | {f"full/f{n}": "" for n in range(26)})
    assert found == [
        "full: 26 files",
        "scripts/c:1: c.py has 81 lines",
        "scripts/d: 401 lines",
        "src/a.cpp: 401 lines",
        "src/a.cpp:1: a.cpp has 401 lines",
        "tests/b.py:1: b.py has 151 lines",
    ]
