# SPDX-License-Identifier: Apache-2.0
"""What was measured: record.json, and the table of docs/operate/reliability.md made from it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RECORD = Path(__file__).resolve().parent / "record.json"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "operate" / "reliability.md"
BEGIN, END = "<!-- made by make reliability -->", "<!-- end -->"


@dataclass(frozen=True)
class Outcome:
    """One case. Times are seconds; those that begin at the kill have `after` in their names."""

    case: str
    killed: str
    away: float  # how long the case itself kept the part away
    stood_still: float  # the longest time in which a rank of the running job did no step
    attempts: int
    replaced: int  # pods
    restarts: int
    disruptions: int
    repeated: int  # steps
    new_job_after: float  # a job that was submitted at the kill trains
    back_after: float | None  # the part has renewed its Lease
    spares: int = 0

    @property
    def happened(self) -> str:
        if self.spares:
            return "a spare takes the place, all ranks start again"
        if self.replaced:
            return "one pod is replaced, all ranks start again"
        return "all ranks start again in their pods" if self.attempts else "goes on"


@dataclass
class Measured:
    """What one run of the tests adds to the record."""

    cases: list[Outcome] = field(default_factory=list)
    memory: dict[str, float] = field(default_factory=dict)  # MiB of the operators, by their part


HEAD = (
    "killed",
    "away, s",
    "running job",
    "stood still, s",
    "restarts",
    "disruptions",
    "steps repeated",
    "new job trains after, s",
    "part is back after, s",
)


def row(one: Outcome) -> str:
    cells = (
        one.killed,
        f"{one.away:.0f}" if one.away else "–",
        one.happened,
        f"{one.stood_still:.1f}",
        str(one.restarts),
        str(one.disruptions),
        str(one.repeated),
        f"{one.new_job_after:.1f}",
        "–" if one.back_after is None else f"{one.back_after:.1f}",
    )
    return f"| {' | '.join(cells)} |"


def table(record: dict[str, Any]) -> str:
    rows = [row(Outcome(**one)) for one in record["cases"]]
    lines = [
        "",
        f"Recorded on {record['date']}: {record['nodes']} nodes, {record['processors']} processors,"
        f" load {record['load']:.0f}, programs of the preset `{record['build']}`.",
    ]
    if memory := record["memory"]:
        lines.append(
            f"The operator that leads takes {memory['leader']:.0f} MiB, the one that stands by"
            f" {memory['standby']:.0f} MiB."
        )
    head = ["", f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    return "\n".join([*lines, *head, *rows, ""])


def with_table(page: str, record: dict[str, Any]) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(record)}\n{END}{after}"


def merged(
    record: dict[str, Any], order: list[str], new: Measured, facts: dict[str, Any]
) -> dict[str, Any]:
    """The record with these cases instead of their earlier ones, in the order of the tests."""
    cases = {one["case"]: one for one in record.get("cases", [])}
    cases |= {one.case: asdict(one) for one in new.cases}
    memory = new.memory or record.get("memory", {})
    return {**facts, "memory": memory, "cases": [cases[name] for name in order if name in cases]}


def write(order: list[str], new: Measured, facts: dict[str, Any]) -> None:
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    record = merged(record, order, new, facts)
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), record))
