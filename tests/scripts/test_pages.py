# SPDX-License-Identifier: Apache-2.0
"""What the pages for users list is what the operator has: phases, and reasons of a job's status."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
OPERATOR = "\n".join(path.read_text() for path in sorted((ROOT / "operator").rglob("*.[ch]pp")))


def section(page: str, title: str) -> str:
    """The text below a heading, up to the next heading of any level."""
    text = (ROOT / page).read_text()
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", text, re.M | re.S)
    assert found, f"{page} has no heading {title!r}"
    return found[1]


def first_cells(text: str) -> set[str]:
    return {
        name for row in re.findall(r"^\| (`.*?) \|", text, re.M) for name in row.split("`")[1::2]
    }


def test_the_reference_lists_the_phases_of_the_schema() -> None:
    document = yaml.safe_load((ROOT / "crds/trainingjobs.yaml").read_text())
    schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    phases = schema["status"]["properties"]["phase"]["enum"]
    assert first_cells(section("docs/reference/api.md", "phase")) == set(phases)


def test_the_page_of_failures_lists_the_reasons_of_the_operator() -> None:
    page = "docs/train/failures.md"
    waits = first_cells(section(page, "My job stays in `Queued`"))
    ends = first_cells(section(page, "My job failed"))
    assert waits - set(re.findall(r'"(\w+)"', OPERATOR)) == set()
    assert ends - set(re.findall(r'"(\w+)"', OPERATOR)) == set()
    unplaced = set(re.findall(r'\bunplace\(\s*"(\w+)"', OPERATOR))
    assert unplaced - waits == {"Suspended"}  # which is a phase of its own
    assert set(re.findall(r'\bfinish\(\s*false,\s*"(\w+)"', OPERATOR)) - ends == set()
