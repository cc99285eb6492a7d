# SPDX-License-Identifier: Apache-2.0
"""tests/reliability: its record, and the table of docs/operate/reliability.md made from it."""

from __future__ import annotations

import json
from dataclasses import asdict

import outcomes

LOST = outcomes.Outcome(
    case="node",
    killed="a node",
    away=60.0,
    stood_still=21.34,
    attempts=1,
    replaced=1,
    restarts=0,
    disruptions=1,
    repeated=4,
    new_job_after=1.2,
    back_after=None,
)
FACTS = {"date": "2026-11-27", "nodes": 3, "processors": 2, "load": 1.0, "build": "release"}


def test_the_page_has_the_recorded_figures() -> None:
    page = outcomes.PAGE.read_text()
    assert page == outcomes.with_table(page, json.loads(outcomes.RECORD.read_text()))


def test_a_row_says_what_happened() -> None:
    assert outcomes.row(LOST) == (
        "| a node | 60 | one pod is replaced, all ranks start again | 21.3 | 0 | 1 | 4 | 1.2 | – |"
    )


def test_a_case_that_was_not_run_again_keeps_its_figures() -> None:
    old = {"cases": [{**asdict(LOST), "case": "rank"}, {**asdict(LOST), "restarts": 7}]}
    record = outcomes.merged(old, ["node", "rank"], outcomes.Measured([LOST]), FACTS)
    assert [(one["case"], one["restarts"]) for one in record["cases"]] == [("node", 0), ("rank", 0)]
    assert record["date"] == FACTS["date"]
