#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the sentences of Markdown files and of comments, and reports those that are too long.

python3 -m linting.prose                  a table by kind and folder
python3 -m linting.prose --check KIND…    names long sentences of markdown or comments, and fails

A code span, a link's target and an address count as one word or none. Code blocks are left out; a
table's cell and a list's item are texts of their own. Fragments below four words do not count.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 35
FRAGMENT = 3
KINDS = {
    "markdown": (".md",),
    "comments": (".cpp", ".hpp", ".h", ".cu", ".cuh", ".py", ".sh", ""),
}
END = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_`]*[A-Z0-9`])")
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|etc|vs|cf)\.(?=\s)")
Paragraph = tuple[int, str]


def sentences(text: str) -> list[str]:
    """The sentences of one paragraph."""
    plain = re.sub(r"``[^`]+``|`[^`]+`", "CODE", text)
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", plain)
    plain = ABBREVIATION.sub(r"\1", re.sub(r"<[^>]+>", "", plain))
    return [part.strip() for part in END.split(" ".join(plain.split())) if part.strip()]


def words(sentence: str) -> int:
    return sum(1 for word in sentence.split() if re.search(r"\w", word))


def paragraphs(lines: list[tuple[int, str]]) -> Iterator[Paragraph]:
    """Joins lines up to a blank line, an item, a heading or a row with a wide gap between columns.

    Yields each paragraph with its first line.
    """
    start, held = 0, ""
    for number, line in [*lines, (0, "")]:
        begins = re.match(r"\s*([-*+]|\d+\.)\s+|#+\s|\|", line)
        row = re.search(r"(?<=\S) {2,}(?=\S)", line)
        if held and (not line.strip() or begins or row):
            yield start, held
            held = ""
        if line.strip():
            start = start if held else number
            held += f" {line[begins.end() :] if begins else line}"


def of_markdown(text: str) -> Iterator[Paragraph]:
    fenced, lines = False, []
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*```", line):
            fenced = not fenced
            lines.append((number, ""))
        elif fenced or line.startswith("    "):
            lines.append((number, ""))
        elif line.lstrip().startswith("|"):
            for cell in line.strip().strip("|").split("|"):
                lines += [(number, cell.strip()), (number, "")]
        else:
            lines.append((number, line))
    yield from paragraphs(lines)


def of_python(text: str) -> Iterator[Paragraph]:
    """Comments, and the docstrings of modules, classes and functions."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            said = ast.get_docstring(node)
            first = node.body[0].lineno if said else 0
            lines = [(first + at, line) for at, line in enumerate((said or "").splitlines())]
            yield from paragraphs(
                [(n, "" if line.startswith("    ") else line) for n, line in lines]
            )
    lines, last = [], 0  # the last line that was a comment and nothing else
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            number, own = token.start[0], token.line.lstrip().startswith("#")
            if not own or number != last + 1:
                lines.append((number, ""))
            last = number if own else 0
            lines.append((number, token.string.lstrip("#! ")))
    yield from paragraphs(lines)


def of_lines(text: str, mark: str) -> Iterator[Paragraph]:
    """Comments that begin with `mark` and end with their line, as of C++ and of shells."""
    lines: list[tuple[int, str]] = []
    alone = True  # whether the comment above had its line for itself
    for number, line in enumerate(text.splitlines(), 1):
        found = re.search(rf"(?:^|\s){mark}+(?:\s|$)(.*)", line)
        own = line.lstrip().startswith(mark)
        if not found or not (own and alone):
            lines.append((number, ""))
        alone = own or not found
        if found and not re.search(r"clang-format|NOLINT|shellcheck|SPDX", line):
            lines.append((number, found[1]))
    yield from paragraphs(lines)


def of_file(path: Path) -> Iterator[Paragraph]:
    text = path.read_text(errors="replace")
    if text.startswith("<!-- Made by"):
        return  # the sentences are those of what it is made from
    if path.suffix == ".md":
        yield from of_markdown(text)
    elif path.suffix in (".cpp", ".hpp", ".h", ".cu", ".cuh"):
        yield from of_lines(text, "//")
    elif path.suffix == ".py" or "python" in text.split("\n", 1)[0]:
        yield from of_python(text)
    elif path.suffix == ".sh" or text.startswith("#!"):
        yield from of_lines(text, "#")


def listed(root: Path, kind: str) -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    answer = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return [
        name
        for name in answer.stdout.splitlines()
        if (root / name).is_file()
        and Path(name).suffix in KINDS[kind]
        and not name.startswith("tests/fixtures/")
    ]


def measured(root: Path, kind: str) -> Iterator[tuple[str, int, str, int]]:
    """File, line, text and number of words of each sentence."""
    for name in listed(root, kind):
        for line, paragraph in of_file(root / name):
            for sentence in sentences(paragraph):
                count = words(sentence)
                if count > FRAGMENT:
                    yield name, line, sentence, count


def table(root: Path) -> None:
    print(f"{'kind':10} {'folder':24} sentences  median  above {LIMIT}")
    for kind in KINDS:
        found: dict[str, list[int]] = defaultdict(list)
        for name, _, _, count in measured(root, kind):
            parts = Path(name).parts
            found["/".join(parts[: min(2, len(parts) - 1)]) or "."].append(count)
        found["all"] = [count for counts in found.values() for count in counts]
        for folder, counts in found.items():
            median = statistics.median(counts) if counts else 0
            long = sum(count > LIMIT for count in counts)
            print(f"{kind:10} {folder:24} {len(counts):9} {median:7.0f} {long:9}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--check", nargs="+", choices=KINDS, metavar="KIND", default=[])
    kinds = parser.parse_args().check
    if not kinds:
        table(ROOT)
        return 0
    long = [found for kind in kinds for found in measured(ROOT, kind) if found[3] > LIMIT]
    for name, line, sentence, count in long:
        print(f"{name}:{line}: a sentence of {count} words: {sentence[:100]}…", file=sys.stderr)
    return 1 if long else 0


if __name__ == "__main__":
    sys.exit(main())
