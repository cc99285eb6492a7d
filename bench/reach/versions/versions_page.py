# SPDX-License-Identifier: Apache-2.0
"""Writes the record of bench/reach/versions as the page docs/reach-versions.md and as one line of
JSON.
"""

from __future__ import annotations

import json
from typing import Any

STATES = ("acts", "declines", "not in PyTorch", "breaks")

BEGINNING = """# Reach over releases of PyTorch

On which releases of PyTorch does acceleration act?

```sh
make reach-versions
```

This installs each release once, runs the programs of `bench/reach/versions/programs` under it, and
writes this page.
None of them mentions Paceline.
What acts on real trainers, and what that gains: [reach.md](reach.md).
"""

WORDS = """
- acts: the feature has served the program. What it gained is not measured here.
- declines: the feature has left the program to PyTorch, for the reason below.
- not in PyTorch: the program fails without Paceline, too, with the error below.
  Where the error speaks of a stub, this release wants a GPU for it.
- breaks: the program fails with Paceline alone. `make reach-versions` then fails.
- Step marks act if each step of the program has a record with forward, backward and optimizer.
- The cell of FSDP2 tells whether the library updates the shards.
- A loader without workers is given two, by `PACELINE_LOADER_WORKERS=2`: whether they pay depends on
  the machine.
- The compiler is tried at once, by `PACELINE_TUNE_AFTER=0`. It acts if steps ran compiled and were
  compared with eager ones, whether it was kept or rolled back.
"""

ENVIRONMENTS = """
## The environments

`bench/reach/versions/environment RELEASE` makes one, with Debian's Python 3.11.
It installs PyTorch's wheel from PyPI without NVIDIA's packages, which have most of the bytes.
`bench/reach/versions/stubs.py` makes libraries in their place, whose functions all fail.
So `torch.cuda.is_available()` is false, and PyTorch computes on the CPU.
"""


def page(record: dict[str, Any]) -> str:
    """docs/reach-versions.md."""
    rows = record["rows"]
    titles = list(dict.fromkeys(title for row in rows for title in row["cells"]))
    return "\n".join(
        [
            BEGINNING,
            f"Recorded on {record['date']}: Python {rows[-1]['python']}, CPU,"
            f" {record['processors']} processors.",
            WORDS,
            "## Results",
            "",
            f"| feature | {' | '.join(row['release'] for row in rows)} |",
            "|---" * (len(rows) + 1) + "|",
            *(
                f"| {title} | {' | '.join(_state(row, title) for row in rows)} |"
                for title in titles
            ),
            "",
            "## What did not act, and why",
            "",
            "| feature | releases | reason |",
            "|---|---|---|",
            *(line for title in titles for line in _reasons(rows, title)),
            ENVIRONMENTS,
            "| release | symbols | size |",
            "|---|---|---|",
            *(
                f"| {row['release']} | {row['symbols']} | {row['bytes'] / 1e9:.1f} GB |"
                for row in rows
            ),
            "",
            "They are installed one after the other into the cache, where they stay until two weeks"
            " without use.",
            f"All together take {sum(row['bytes'] for row in rows) / 1e9:.0f} GB."
            " An installation needs up to 1 GB more for its wheel.",
            "",
        ]
    )


def _state(row: dict[str, Any], title: str) -> str:
    cell = row["cells"].get(title)
    return "not run" if cell is None else str(cell["state"])


def _reasons(rows: list[dict[str, Any]], title: str) -> list[str]:
    """A line for each reason, with the releases that share it."""
    releases: dict[str, list[str]] = {}
    for row in rows:
        reason = row["cells"].get(title, {}).get("reason", "")
        if reason:
            releases.setdefault(reason, []).append(row["release"])
    return [
        f"| {title} | {', '.join(names)} | {reason.replace('|', '/')} |"
        for reason, names in releases.items()
    ]


def last_line(record: dict[str, Any]) -> str:
    states = [cell["state"] for row in record["rows"] for cell in row["cells"].values()]
    told: dict[str, Any] = {"bench": "reach-versions", "of": len(states)}
    told |= {state.replace(" ", "_").lower(): states.count(state) for state in STATES}
    told["rows"] = [
        {"torch": row["release"], **{title: one["state"] for title, one in row["cells"].items()}}
        for row in record["rows"]
    ]
    return json.dumps(told)
