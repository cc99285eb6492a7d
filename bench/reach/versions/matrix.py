# SPDX-License-Identifier: Apache-2.0
"""Runs small programs under several releases of PyTorch with Paceline in them, and writes what acts
and what declines. The last line is JSON.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "accel" / "tests")]

import rings  # noqa: E402
import versions_page  # noqa: E402

# The newest patch of each minor release that PyPI serves.
RELEASES = ("2.1.2", "2.4.1", "2.7.1", "2.9.1", "2.11.0", "2.14.1", "2.15.0")
PATIENCE = 900.0  # seconds for one program

# What a job with `acceleration: {}` is told. The compiler is tried at once, and the number of
# workers is given: what is asked here is whether a release can do it, not whether it pays.
ASKED = {
    "PACELINE_LOADER": "Auto",
    "PACELINE_LOADER_WORKERS": "Auto",
    "PACELINE_OPTIMIZER": "Auto",
    "PACELINE_COMMUNICATION": "Auto",
    "PACELINE_OPERATORS": "Auto",
}
WORKERS = {"PACELINE_LOADER_WORKERS": "2"}
COMPILE = {"PACELINE_COMPILE": "Auto", "PACELINE_TUNE_AFTER": "0"}


@dataclass(frozen=True)
class Case:
    """A program, and what is read of it: title, feature, and which of the feature's objects."""

    program: str
    cells: tuple[tuple[str, str, int], ...]
    ranks: int = 1
    asked: dict[str, str] = field(default_factory=dict)


MARKS = "step marks"
CASES = (
    Case(
        "plain_loop",
        ((MARKS, "step tracing", 0), ("loader", "loader", 0), ("AdamW", "fused optimizers", 0)),
    ),
    Case("no_workers", (("loader without workers", "loader workers", 0),), asked=WORKERS),
    Case("fused_adamw", (("AdamW, fused=True", "fused optimizers", 0),)),
    Case(
        "two_optimizers",
        (
            ("AdamW, foreach=True", "fused optimizers", 0),
            ("AdamW, bfloat16", "fused optimizers", 1),
        ),
    ),
    Case(
        "ddp_groups",
        (("DDP", "communication", 0), ("DDP, new_group", "communication", 1)),
        ranks=2,
    ),
    Case("ddp_mesh", (("DDP, init_device_mesh", "communication", 0),), ranks=2),
    Case("fsdp2_shards", (("FSDP2", "fused optimizers", 0),), ranks=2),
    Case("long_loop", (("compile", "compile", 0),), asked=COMPILE),
)
TITLES = tuple(title for case in CASES for title, _, _ in case.cells)

Cell = dict[str, str]  # state and reason


class TooSlow(RuntimeError):
    """A program has not ended in time, which says nothing about its PyTorch."""


@dataclass
class Ran:
    """What rank 0 of a program told, and its records."""

    code: int
    output: str
    told: dict[str, Any]
    steps: list[rings.Record]


def run(python: Path, runtime: Path, case: Case, **extra: str) -> Ran:
    """Runs a program as the launcher runs ranks."""
    words = [str(python), str(HERE / "inside.py"), str(HERE / "programs" / f"{case.program}.py")]
    with tempfile.TemporaryDirectory() as name, rings.Receiver() as receiver:
        folder = Path(name)
        environment = {
            **rings.environment(runtime, receiver.path),
            **ASKED,
            **case.asked,
            **extra,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "WORLD_SIZE": str(case.ranks),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        }
        processes = []
        for rank in range(case.ranks):
            mine = {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            with (folder / f"log-{rank}").open("wb") as log:
                process = subprocess.Popen(
                    [*words, name], cwd=folder, env=mine, stdout=log, stderr=subprocess.STDOUT
                )
            processes.append(process)
        codes = finish(processes)
        output = "".join((folder / f"log-{rank}").read_text() for rank in range(case.ranks))
        file = folder / "rank-0.json"
        told = json.loads(file.read_text()) if file.exists() else {}
        receiver.poll()
        steps = [step for ring in receiver.rings if ring.rank == 0 for step in ring.steps]
    return Ran(max(codes, key=abs), output, told, steps)


def finish(processes: list[subprocess.Popen[bytes]]) -> list[int]:
    try:
        return [process.wait(PATIENCE) for process in processes]
    except subprocess.TimeoutExpired as error:
        raise TooSlow(f"a program has not ended within {PATIENCE:.0f} s") from error
    finally:
        for process in processes:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def cells_of(case: Case, ran: Ran) -> dict[str, Cell]:
    explained = ran.told["explained"]
    return {
        title: marks_cell(explained[feature], ran)
        if title == MARKS
        else cell(explained[feature], number)
        for title, feature, number in case.cells
    }


def cell(told: dict[str, Any], number: int) -> Cell:
    """What a feature did to the object of this number."""
    if told["state"] == "off":
        return {"state": "declines", "reason": told["reason"]}
    if number >= len(told["seen"]):
        return {"state": "declines", "reason": "it has not met it"}
    entry = told["seen"][number]
    worked = all(entry.get(count, 1) > 0 for count in ("steps", "iterators", "passes"))
    if entry["state"] == "on" and worked:
        return {"state": "acts", "reason": ""}
    # Compiled, compared and rolled back: what it gains is the machine's affair.
    if entry["reason"].startswith("rolled back") and "pairs of windows" in entry["reason"]:
        return {"state": "acts", "reason": "compiled steps were compared, and gained nothing"}
    return {"state": "declines", "reason": entry["reason"] or "it has done nothing"}


def marks_cell(told: dict[str, Any], ran: Ran) -> Cell:
    """Steps are marked if each has a record with its phases."""
    off = [f"{name}: {what}" for name, what in told["patches"].items() if what != "on"]
    whole = [
        step
        for step in ran.steps
        if all(step.host[phase] > 0 for phase in ("forward", "backward", "optimizer"))
    ]
    if told["state"] == "off":
        return {"state": "declines", "reason": told["reason"]}
    if off or len(whole) != ran.told["steps"]:
        why = [*off, f"{len(whole)} of {ran.told['steps']} steps have a record of all phases"]
        return {"state": "declines", "reason": "; ".join(why)}
    return {"state": "acts", "reason": ""}


def failed(case: Case, ran: Ran, without: Ran) -> dict[str, Cell]:
    """Of a program that failed: PyTorch's own limit, if it fails without Paceline, too."""
    why = last_error(without.output if without.code else ran.output)
    state = "not in PyTorch" if without.code else "breaks"
    return {title: {"state": state, "reason": why} for title, _, _ in case.cells}


def last_error(output: str) -> str:
    lines = [line for line in output.splitlines() if "Error" in line] or output.splitlines()
    return lines[-1].strip()[:200] if lines else "no output"


def rows_of(release: str, runtime: Path, chosen: list[str]) -> Iterator[dict[str, Any]]:
    """The row of a release, as it stands after each program."""
    told = subprocess.run(
        [HERE / "environment", release], stdout=subprocess.PIPE, text=True, check=True
    )
    python = Path(told.stdout.splitlines()[-1])
    row: dict[str, Any] = {"release": release, **facts(python), "cells": {}}
    for case in CASES:
        if chosen and case.program not in chosen:
            continue
        try:
            ran = run(python, runtime, case)
            if ran.code == 0:
                cells = cells_of(case, ran)
            else:
                cells = failed(case, ran, run(python, runtime, case, PACELINE_DISABLE="1"))
        except TooSlow as error:
            print(f"{release}: {case.program}: {error}", file=sys.stderr, flush=True)
            continue
        row["cells"] |= cells
        for title, one in cells.items():
            print(f"{release}: {title}: {one['state']} {one['reason']}", flush=True)
        # The programs print nothing: these are lines of PyTorch or Paceline.
        print(ran.output[-3000:], end="", file=sys.stderr, flush=True)
        yield row


def facts(python: Path) -> dict[str, Any]:
    """The version of an environment's Python, the symbols of its stubs, and its size."""
    environment = python.parents[1]
    said = (environment / "stubs.txt").read_text()
    files = (path for path in environment.rglob("*") if path.is_file() and not path.is_symlink())
    version = subprocess.run([python, "--version"], stdout=subprocess.PIPE, text=True, check=True)
    return {
        "python": version.stdout.split()[1],
        "symbols": int(said.split()[1]),
        "bytes": sum(path.stat().st_size for path in files),
    }


def merged(record: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """The record with this row. What was not run again stays."""
    rows = {one["release"]: one for one in record["rows"]}
    before = rows.get(row["release"], {"cells": {}})
    cells = {**before["cells"], **row["cells"]}
    ordered = {title: cells[title] for title in TITLES if title in cells}
    rows[row["release"]] = {**before, **row, "cells": ordered}
    return {**record, "rows": [rows[name] for name in sorted(rows, key=number)]}


def number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("releases", nargs="*", help=f"default: {' '.join(RELEASES)}")
    parser.add_argument("--build", type=Path, required=True, help="build with runtime/")
    parser.add_argument("--out", type=Path, required=True, help="record to write")
    parser.add_argument("--page", type=Path, help="page to write")
    parser.add_argument("--program", action="append", default=[], help="only this program")
    parser.add_argument("--read", action="store_true", help="run nothing, read the record")
    arguments = parser.parse_args()
    record: dict[str, Any] = {"rows": []}
    if arguments.out.exists():
        record |= json.loads(arguments.out.read_text())
    if not arguments.read:
        runtime = arguments.build.resolve() / "runtime"
        for release in arguments.releases or RELEASES:
            for row in rows_of(release, runtime, arguments.program):
                record = merged(record, row)
                today = datetime.datetime.now(datetime.timezone.utc).date()
                record |= {"date": today.isoformat(), "processors": len(os.sched_getaffinity(0))}
                arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    if arguments.page:
        arguments.page.write_text(versions_page.page(record))
    print(versions_page.last_line(record))
    states = [
        row["cells"].get(title, {}).get("state") for row in record["rows"] for title in TITLES
    ]
    return 1 if "breaks" in states or None in states else 0


if __name__ == "__main__":
    sys.exit(main())
