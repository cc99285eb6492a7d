# SPDX-License-Identifier: Apache-2.0
"""linting.links accepts a tree whose names all exist and reports each name that does not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from linting.links import complaints

README = """# Parts

`make lint` runs `scripts/lint`; see [the design](docs/api.md#two-words) and [this](#parts).
`tests/*.py`, `bench/NAME/run`, `docs/<page>.md` and `usr/lib/x` are not checked or match.

```sh
make lint
scripts/lint fix
```
"""
FILES = {
    "Makefile": ".PHONY: lint\nlint: ## checks\n\tscripts/lint\n",
    "README.md": README,
    "docs/api.md": "# API\n\n## Two words\n",
    "scripts/lint": "",
    "tests/a.py": "",
    "bench/x/run": "",
}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("", "", []),
        ("docs/api.md#", "docs/no.md#", ["README.md: the link's file docs/no.md does not exist"]),
        ("#two-words", "#three", ["README.md: docs/api.md has no heading #three"]),
        ("#parts", "#part", ["README.md: README.md has no heading #part"]),
        ("`make lint`", "`make lunch`", ["README.md: the Makefile has no target lunch"]),
        ("\nmake lint", "\nmake it", ["README.md: the Makefile has no target it"]),
        ("\nscripts/lint", "\nscripts/lent", ["README.md: there is no scripts/lent"]),
        ("tests/*.py", "tests/*.cpp", ["README.md: there is no tests/*.cpp"]),
    ],
)
def test_names_that_do_not_exist_are_told(
    tmp_path: Path, old: str, new: str, told: list[str]
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(
            text.replace(old, new) if old and name == "README.md" else text
        )
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    assert list(complaints(tmp_path)) == told
