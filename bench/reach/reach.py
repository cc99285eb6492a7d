# SPDX-License-Identifier: Apache-2.0
"""Trains every recipe without Paceline, with it, and with it at lower precision, and writes what
acted and what that gained. The last line is JSON.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import figures
import table
import torch
from catalogue import CATALOGUE, PAIRS, WARM_UP, Recipe
from running import Failed, Place, Run, measure

HERE = Path(__file__).parent


def distance(left: Path, right: Path) -> float | None:
    """How far two saved models are apart, relative to the left one; None without a model."""
    if not left.exists() or not right.exists():
        return None
    one, other = (torch.load(path, map_location="cpu") for path in (left, right))
    if one.keys() != other.keys():
        return None
    apart = whole = 0.0
    for name, value in one.items():
        if torch.is_tensor(value) and value.is_floating_point():
            apart += float((value.double() - other[name].double()).square().sum())
            whole += float(value.double().square().sum())
    return float((apart / whole) ** 0.5) if whole else 0.0


def row_of(recipe: Recipe, runs: dict[str, Run]) -> dict[str, Any]:
    explained = runs["with"].told["explained"]
    row: dict[str, Any] = {
        "name": recipe.name,
        "package": recipe.package,
        "bound": recipe.bound,
        "ranks": recipe.ranks,
        "batch": recipe.batch,
        "acted": figures.acted(explained),
        "declined": figures.declined(explained),
        "gain": gain_of(runs, "with"),
        "control": gain_of(runs, "again"),
        "lossy": gain_of(runs, "lossy"),
        "parts": figures.parts(explained),
        "tuning": figures.tuning(explained, runs["with"].tuning),
        "seconds": {name: [round(one, 6) for one in run.windows] for name, run in runs.items()},
    }
    for key, variant, numerics in (
        ("weights", "with", "Reordered"),
        ("weights_lossy", "lossy", "Lossy"),
    ):
        repeated, early = apart(runs, variant)
        row[key] = {"early": early, "verdict": figures.verdict(repeated, early, numerics)}
    row["whole"] = figures.whole(row)
    return row


def gain_of(runs: dict[str, Run], variant: str) -> dict[str, float] | None:
    """None where only what acts was looked at."""
    if "without" not in runs:
        return None
    return figures.gain(runs["without"].windows, runs[variant].windows).told()


def apart(runs: dict[str, Run], variant: str) -> tuple[float | None, float | None]:
    """How far the weights of two runs without are apart, and of one without and this one."""
    if "without" not in runs:
        return None, None
    file = {variant: run.folder / "early.pt" for variant, run in runs.items()}
    return distance(file["without"], file["again"]), distance(file["without"], file[variant])


def said(row: dict[str, Any]) -> str:
    figures_of = [f"{key} {table.gain(row[key])}" for key in ("gain", "control", "lossy")]
    return f"{row['name']}: {', '.join(row['acted']) or 'nothing acted'}; {', '.join(figures_of)}"


def run_all(chosen: list[Recipe], place: Place, out: Path, most: int, look: bool) -> dict[str, Any]:
    """Measures the recipes, and writes the record after each. Rows of other recipes stay in it."""
    record: dict[str, Any] = {"failed": {}, "rows": []}
    if out.exists():
        record |= json.loads(out.read_text())
        record["rows"] = [one for one in record["rows"] if "whole" in one]  # not of older forms
    record |= {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "processors": len(os.sched_getaffinity(0)),
        "warm_up": WARM_UP,
    }
    order = [one.name for one in CATALOGUE]
    for recipe in chosen:
        folder = Path(tempfile.mkdtemp(prefix="reach-"))
        try:
            runs = measure(recipe, folder, place, *((1, ["with"]) if look else (most,)))
            row = row_of(recipe, runs)
            rows = [one for one in record["rows"] if one["name"] != recipe.name]
            record["rows"] = sorted([*rows, row], key=lambda one: order.index(one["name"]))
            record["failed"].pop(recipe.name, None)
            record |= {key: runs["with"].told[key] for key in ("torch", "device")}
            row["load"] = round(os.getloadavg()[1], 1)
            print(said(row), flush=True)
        except Failed as error:
            record["failed"][recipe.name] = str(error).splitlines()[0]
            print(error, file=sys.stderr, flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        out.write_text(json.dumps(record, indent=1) + "\n")
    return record


def choose(names: list[str], bound: str) -> list[Recipe]:
    """The recipes with one of these names, all if none is given, that this bounds."""
    return [one for one in CATALOGUE if (not names or one.name in names) and bound in one.bound]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="recipes (default: all)")
    parser.add_argument(
        "--bound", help="only recipes bound by this: loader, gradients, small or product"
    )
    parser.add_argument("--build", type=Path, required=True, help="build with bin/ and runtime/")
    parser.add_argument("--out", type=Path, help="record to write (default: a temporary file)")
    parser.add_argument("--windows", type=int, default=PAIRS, help="most windows of a run")
    parser.add_argument(
        "--look", action="store_true", help="only look at what acts: one short run, no gains"
    )
    parser.add_argument("--page", type=Path, help="page to write")
    parser.add_argument("--read", type=Path, help="measure nothing, read this record")
    arguments = parser.parse_args()
    if arguments.read:
        record = json.loads(arguments.read.read_text())
    else:
        chosen = choose(arguments.names, arguments.bound or "")
        if not chosen:
            parser.error(f"no recipe is called {arguments.names} and bound by {arguments.bound!r}")
        with tempfile.TemporaryDirectory() as data:
            subprocess.run([sys.executable, HERE / "data.py", data], check=True)
            place = Place(arguments.build.resolve(), Path(data), Path(sys.executable))
            out = arguments.out or Path(data) / "record.json"
            record = run_all(chosen, place, out, arguments.windows, arguments.look)
    if not record["rows"]:
        print("reach: no recipe has run to its end", file=sys.stderr)
        return 1
    if arguments.page:
        arguments.page.write_text(table.page(record))
    print(table.last_line(record))
    return 1 if record["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
