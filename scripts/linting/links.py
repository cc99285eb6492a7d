#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that Markdown files name things that exist; `scripts/lint rules` runs it.

Three things are checked: the target and anchor of each relative link, each path in backticks or in
a code block that begins with a top-level folder of the repository, and each `make TARGET`. A path
counts from the root or from the document's folder, and may lack its extension. A word with
capitals, <> or $ in it is a placeholder. A * matches any name.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"```(?!mermaid).*?^```|``.*?``|`[^`\n]+`", re.S | re.M)
PATH = re.compile(r"(?<![\w./~<>$*-])([\w.-]+/[\w./*-]*)(?![\w<>$*{}-])")
PLACEHOLDER = re.compile(r"(^|[/.])[A-Z]{3,}($|[/.])|\.\.\.")
# These tell what was removed, so only their links are checked.
HISTORY = ("CHANGELOG.md", "docs/designs/decisions.md")
MAKE = re.compile(r"(?:^|[`\s])make ([a-z][\w-]*)")


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a document."""
    headings = re.findall(r"^#+ +(.*)$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(root: Path, document: Path, text: str) -> Iterator[str]:
    for target in LINK.findall(CODE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        place = (document.parent / name).resolve() if name else document
        if not place.exists():
            yield f"the link's file {name} does not exist"
        elif anchor and place.suffix == ".md" and anchor not in anchors(place.read_text()):
            yield f"{place.relative_to(root)} has no heading #{anchor}"


def exists(path: str, bases: tuple[Path, ...]) -> bool:
    return any(any(base.glob(path + end)) for base in bases for end in ("", ".*"))


def missing_names(
    bases: tuple[Path, ...], text: str, folders: set[str], targets: set[str]
) -> Iterator[str]:
    for code in CODE.findall(text):
        for path in PATH.findall(code):
            known = path.split("/")[0] in folders and not PLACEHOLDER.search(path)
            if known and not exists(path.rstrip("/."), bases):
                yield f"there is no {path}"
        for target in MAKE.findall(code):
            if target not in targets:
                yield f"the Makefile has no target {target}"


def complaints(root: Path) -> Iterator[str]:
    """One line for each name that does not exist."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    answer = subprocess.run(listed, cwd=root, capture_output=True, text=True, check=True)
    files = [Path(name) for name in answer.stdout.splitlines()]
    folders = {file.parts[0] for file in files if len(file.parts) > 1}
    targets = set(re.findall(r"^([a-z][\w-]*):", (root / "Makefile").read_text(), re.M))
    for file in files:
        if file.suffix != ".md" or not (root / file).is_file():
            continue
        text = (root / file).read_text()
        wrong = list(broken_links(root, root / file, text))
        if str(file) not in HISTORY:
            wrong += missing_names((root, (root / file).parent), text, folders, targets)
        yield from (f"{file}: {what}" for what in wrong)


def main() -> int:
    found = list(complaints(ROOT))
    if found:
        print("Markdown names what does not exist:", *found, sep="\n", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
