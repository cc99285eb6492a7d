# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference/python-api.md from the docstrings of the public Python names. With --check
it writes nothing and fails if the page is not current. Run it by scripts/api-page, which installs
griffe.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "python-api.md"
MODULES = (
    "paceline",
    "paceline.loader",
    "paceline.optim",
    "paceline.ops",
    "paceline.amp",
    "paceline.graph",
    "paceline.comm",
    "paceline.tensorflow",
    "paceline.paddle",
    "paceline.xgboost",
)
SECTIONS = ("Args:", "Returns:", "Raises:", "Example:")
HEAD = """<!-- Made by scripts/api-page from the docstrings: edit those. -->
# Python package

Which functions does the Python package have?
`pip install .` in the repository installs it; in a job it is there already.
Importing `paceline` needs no PyTorch; the functions use the PyTorch that is installed.
"""


def signature(name: str, function: Any) -> str:
    """As it is written, without annotations of `self`, one parameter a line if it is long."""
    shown, star = [], False
    for parameter in function.parameters:
        if parameter.name == "self":
            continue
        kind = str(parameter.kind.value) if parameter.kind else ""
        if kind == "keyword-only" and not star:
            shown.append("*")
            star = True
        star = star or kind.startswith("variadic pos")
        text = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "") + parameter.name
        if parameter.annotation is not None and not kind.startswith("variadic"):
            text += f": {parameter.annotation}"
        if parameter.default is not None and not kind.startswith("variadic"):
            text += f" = {parameter.default}" if parameter.annotation else f"={parameter.default}"
        shown.append(text)
    returns = f" -> {function.returns}" if function.returns and function.name != "__init__" else ""
    line = f"{name}({', '.join(shown)}){returns}"
    if len(line) <= 90:
        return line
    return f"{name}(\n" + "".join(f"    {each},\n" for each in shown) + f"){returns}"


def entries(body: list[str]) -> Iterator[str]:
    """`name: text` entries of a section as one line each."""
    found: list[str] = []
    for line in body:
        if re.match(r"\S", line):
            found.append(line)
        elif found:
            found[-1] += " " + line.strip()
    for entry in found:
        name, colon, text = entry.partition(": ")
        names = ", ".join(f"`{one}`" for one in name.split(", "))
        yield f"- {names}: {text}" if colon and re.fullmatch(r"[\w, ]+", name) else entry


def markdown(docstring: str) -> str:
    """A docstring as a part of the page."""
    made: list[str] = []
    parts = re.split(rf"(?m)^({'|'.join(SECTIONS)})\n", docstring)
    made.append(parts[0].strip())
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        body = [line.removeprefix("    ") for line in text.rstrip().splitlines()]
        if name == "Example:":
            made.append("\n".join(["```python", *body, "```"]).replace("  # doctest: +SKIP", ""))
        else:
            lines = [" ".join(body)] if name == "Returns:" else list(entries(body))
            wrapped = (
                textwrap.fill(line, 100, subsequent_indent="  " if line.startswith("- ") else "")
                for line in lines
            )
            made.append("\n".join([{"Args:": "Arguments:"}.get(name, name), "", *wrapped]))
    return "\n\n".join(made)


def member(module: str, name: str, found: Any) -> Iterator[str]:
    """One public name, and the public methods that its class documents."""
    if found.is_alias:
        found = found.final_target
    if not (found.is_function or found.is_class):
        return
    full = f"{module}.{name}"
    yield f"### {full}\n"
    function = found if found.is_function else found.members.get("__init__")
    if function is not None:
        yield f"```python\n{signature(full, function)}\n```\n"
    yield markdown(found.docstring.value if found.docstring else "") + "\n"
    if found.is_class:
        for method in found.members.values():
            if method.is_function and method.docstring and not method.name.startswith("_"):
                yield f"#### {name}.{method.name}\n"
                yield f"```python\n{signature(method.name, method)}\n```\n"
                yield markdown(method.docstring.value) + "\n"


def page() -> str:
    package = griffe.load("paceline", search_paths=[str(ROOT / "accel" / "python")])
    parts = [HEAD]
    for name in MODULES:
        module = package if name == "paceline" else package[name.removeprefix("paceline.")]
        parts.append(f"## {name}\n")
        parts.append(markdown(module.docstring.value) + "\n")
        for public in module.exports or ():
            public = getattr(public, "name", public)
            if public in module.members:
                parts += member(name, public, module.members[public])
    return "\n".join(parts).rstrip() + "\n"


def main() -> int:
    made = page()
    if PAGE.exists() and PAGE.read_text() == made:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{PAGE.relative_to(ROOT)} is not what the docstrings say: run scripts/api-page")
        return 1
    PAGE.write_text(made)
    print(PAGE.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
