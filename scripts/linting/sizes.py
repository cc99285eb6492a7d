#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reports functions, sources and folders that are larger than a reader keeps in mind.

`scripts/lint sizes` runs it with the pinned lizard, which measures the functions. Folders of
fixtures are left out, since a reader does not go through them. usage: python3 -m linting.sizes
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import lizard

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = {".cpp", ".hpp", ".h", ".cu", ".cuh", ".py", ".sh"}
FUNCTION_LINES = 80
# Tests hold programs as strings and tables of cases.
TEST_FUNCTION_LINES = 150
FILE_LINES = 400
TEST_FILE_LINES = 600
FOLDER_FILES = 25
# Says in its first lines that a script has made it: nobody reads it from end to end.
MADE, MADE_WITHIN = "Made by scripts/", 1000
FIXTURES = ("tests/fixtures/", "tests/fuzz/corpus/")


def listed(root: Path) -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    answer = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return [
        name
        for name in answer.stdout.splitlines()
        if (root / name).is_file() and not name.startswith(FIXTURES)
    ]


def is_source(path: Path) -> bool:
    """Whether this is C++, CUDA, Python or shell; a script may have no extension."""
    if path.suffix:
        return path.suffix in SUFFIXES
    with path.open("rb") as file:
        first = file.readline(64)
    return first.startswith(b"#!") and (b"python" in first or b"bash" in first)


def is_test(name: str) -> bool:
    return name.startswith("tests/") or "/tests/" in name


def long_functions(root: Path, name: str) -> Iterator[str]:
    """Functions as lizard finds them; it takes a script without an extension for Python."""
    text = (root / name).read_text(errors="replace")
    known = name if Path(name).suffix else f"{name}.py"
    if known.endswith(".py") and not Path(name).suffix and "python" not in text.split("\n", 1)[0]:
        return  # lizard reads no shell
    known = known.replace(".cuh", ".cpp").replace(".cu", ".cpp")
    for function in lizard.analyze_file.analyze_source_code(known, text).function_list:
        if function.length > (TEST_FUNCTION_LINES if is_test(name) else FUNCTION_LINES):
            yield f"{name}:{function.start_line}: {function.name} has {function.length} lines"


def complaints(root: Path) -> Iterator[str]:
    """One line for each function, source and folder above its limit."""
    names = listed(root)
    for folder, count in sorted(Counter(str(Path(name).parent) for name in names).items()):
        if count > FOLDER_FILES:
            yield f"{folder}: {count} files"
    for name in names:
        if not is_source(root / name):
            continue
        text = (root / name).read_text(errors="replace")
        if MADE in text[:MADE_WITHIN]:
            continue
        lines = text.count("\n")
        if lines > (TEST_FILE_LINES if is_test(name) else FILE_LINES):
            yield f"{name}: {lines} lines"
        yield from long_functions(root, name)


def main() -> int:
    found = list(complaints(ROOT))
    if found:
        print(
            f"above {FUNCTION_LINES} lines a function, {FILE_LINES} a source (in tests"
            f" {TEST_FUNCTION_LINES} and {TEST_FILE_LINES}) or {FOLDER_FILES} files a folder:"
            " split by concept:",
            *found,
            sep="\n",
            file=sys.stderr,
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
