# SPDX-License-Identifier: Apache-2.0
"""linting.prose finds sentences in Markdown and in comments, and counts their words."""

from __future__ import annotations

from pathlib import Path

import pytest
from linting.prose import of_file, sentences, words

MARKDOWN = """# A heading

One sentence over
two lines. Another with `a code span here`. See [the page](x.md).

- An item. Two.
- Next, e.g. this one.

| cell | a cell of words |
|---|---|

```
not. Counted.
```
"""
PYTHON = '''"""Docstring of the module. Second."""
# A comment
# of two lines.
x = 1  # Beside code.
y = 2  # Beside the next.
'''
CPP = """// First line
// goes on. Second.
int x = 1;  // Beside code.
int y = 2;  // Beside the next.
//   NAME   a row
//   OTHER  the next row
// NOLINTNEXTLINE(x)
"""


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (
            "a.md",
            MARKDOWN,
            [
                "A heading",
                "One sentence over two lines.",
                "Another with CODE.",
                "See the page.",
                "An item.",
                "Two.",
                "Next, e.g this one.",
                "cell",
                "a cell of words",
            ],
        ),
        (
            "a.py",
            PYTHON,
            [
                "Docstring of the module.",
                "Second.",
                "A comment of two lines.",
                "Beside code.",
                "Beside the next.",
            ],
        ),
        (
            "a.cpp",
            CPP,
            [
                "First line goes on.",
                "Second.",
                "Beside code.",
                "Beside the next.",
                "NAME a row",
                "OTHER the next row",
            ],
        ),
    ],
)
def test_sentences_are_found(tmp_path: Path, name: str, text: str, told: list[str]) -> None:
    file = tmp_path / name
    file.write_text(text)
    found = [sentence for _, paragraph in of_file(file) for sentence in sentences(paragraph)]
    assert [sentence for sentence in found if words(sentence)] == told


def test_a_code_span_is_one_word() -> None:
    (sentence,) = sentences("Run `make lint -j 2` now - please.")
    assert words(sentence) == 4
