# SPDX-License-Identifier: Apache-2.0
"""bench/reach: its list, its figures, its page, and how its runs take turns."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import figures
import pytest
import running
import table
from catalogue import CATALOGUE, HELPED, RECIPES, WARM_UP, Recipe


def test_the_list_names_every_recipe_and_what_bounds_it() -> None:
    assert {one.name for one in CATALOGUE} == {path.stem for path in RECIPES.glob("*.py")}
    assert len(CATALOGUE) >= 16
    assert sum(one.bound in HELPED for one in CATALOGUE) >= 10
    for one in CATALOGUE:
        assert (one.steps - WARM_UP) // one.window >= 5, one.name


def test_recipes_know_nothing_of_paceline_and_do_not_sleep() -> None:
    for path in RECIPES.glob("*.py"):
        text = path.read_text().lower()
        assert "paceline" not in text and "sleep" not in text, path.name


def test_a_gain_is_the_median_ratio_of_pairs() -> None:
    # The machine became twice as slow on the way: the pairs do not care.
    gain = figures.gain([1.0, 1.1, 2.0, 2.2, 9.9], [0.5, 0.55, 1.0, 1.1, 0.1])
    assert gain.median == pytest.approx(2.0)
    assert gain.low == pytest.approx(2.0) and gain.high == pytest.approx(99.0)
    assert figures.gain([2.0, 2.0], [2.0, 2.0]).told() == {"median": 1, "low": 1, "high": 1}
    with pytest.raises(ValueError, match="2 windows without and 1 with"):
        figures.gain([1.0, 1.0], [1.0])
    with pytest.raises(ValueError, match="0 windows"):
        figures.gain([], [])


def feature(state: str, reason: str, *seen: dict[str, Any]) -> dict[str, Any]:
    return {"state": state, "reason": reason, "seen": list(seen)}


EXPLAINED = {
    "step tracing": feature("on", "a training mark was seen"),
    "loader": feature("on", "", {"state": "on", "reason": "", "iterators": 0}),
    "fused optimizers": feature(
        "on",
        "",
        {"state": "off", "reason": "fused=True", "steps": 0},
        {"state": "on", "reason": "", "steps": 7},
    ),
    "communication": feature("on", "", {"state": "off", "reason": "a group of mpi"}),
    "mixed precision": feature("off", "PACELINE_PRECISION is not set"),
}


def test_only_what_has_served_something_acted() -> None:
    assert figures.acted(EXPLAINED) == ["fused optimizers"]
    assert figures.declined(EXPLAINED) == {
        "loader": ["no loader of PyTorch"],
        "communication": ["a group of mpi"],
        "mixed precision": ["PACELINE_PRECISION is not set"],
    }


@pytest.mark.parametrize(
    ("repeated", "distance", "said"),
    [
        (0.0, 0.0, "equal"),
        (0.0, 1e-6, "as Reordered"),
        (0.0, 1e-3, "differs"),
        (1e-9, 1e-6, "does not repeat itself"),
        (None, 1e-6, "not compared"),
        (0.0, None, "not compared"),
    ],
)
def test_weights_are_judged_by_class(
    repeated: float | None, distance: float | None, said: str
) -> None:
    assert figures.verdict(repeated, distance, "Reordered") == said


def row(name: str, bound: str, gain: float, acted: list[str]) -> dict[str, Any]:
    told = {"median": gain, "low": gain - 0.1, "high": gain + 0.1}
    control = {"median": 1.0, "low": 0.9, "high": 1.1}
    weights = {"verdict": "as Reordered", "early": 1e-7, "final": None, "steps": 100}
    return {
        **{"name": name, "package": name.title(), "bound": bound, "ranks": 1, "batch": 8},
        **{"acted": acted, "gain": told, "control": control, "lossy": told, "load": 2.5},
        **{"declined": {"loader": ["no workers"], "mixed precision": ["not asked"]}},
        **{"weights": weights, "weights_lossy": weights, "seconds": {"with": [1.0] * 10}},
    }


RECORD = {
    **{"date": "2026-11-23", "torch": "2.14.1", "device": "CPU", "processors": 2, "warm_up": 16},
    "failed": {},
    "rows": [
        row("one", HELPED[0], 1.2, ["loader"]),
        row("two", HELPED[1], 1.3, ["communication"]),
        row("three", "one large product", 0.9, []),
    ],
}


def test_the_last_line_has_each_row() -> None:
    told = json.loads(table.last_line(RECORD))
    assert (told["of"], told["acted"]) == (3, 2)
    assert (told["median"], told["median_all"], told["worst"]) == (1.25, 1.2, 0.9)
    assert [one["name"] for one in told["rows"]] == ["one", "two", "three"]
    assert told["rows"][1]["acted"] == ["communication"]


def test_a_recipe_that_was_only_looked_at_has_no_gain() -> None:
    looked = {**row("four", HELPED[2], 1.0, []), "gain": None, "control": None, "lossy": None}
    record = {**RECORD, "rows": [*RECORD["rows"], looked]}
    told = table.line(record)
    assert (told["of"], told["measured"], told["worst"]) == (4, 3, 0.9)
    assert "| recipes with a measured gain | 3 of 4 | all | missed |" in table.page(record)
    assert "| - | not measured | not measured | not measured |" in table.page(record)
    assert "| smallest gain | 0.9 | 0.99 | open |" in table.page(record)


def test_the_page_says_what_misses_its_bar_and_what_declined() -> None:
    page = table.page(RECORD)
    assert (
        "| One (`one`) | a loader that waits | 1 | 8 | loader | 1.200 (1.10 to 1.30) |"
        " 1.000 (0.90 to 1.10) | 1.200 (1.10 to 1.30) |" in page
    )
    assert "| recipes in which something acts | 2 of 3 | 3 | missed |" in page
    assert "| median gain of the first three kinds | 1.25 | 1.10 | met |" in page
    assert "| smallest gain | 0.9 | 0.99 | missed |" in page
    assert "| gains whose interval lies above 1 | 2 of 3 | - | |" in page
    assert "| gains whose interval lies below 1 | 0 of 3 | - | |" in page
    assert "| three | loader | no workers |" in page
    assert "the median ratio of 10 pairs" in page
    assert "not asked" not in page
    assert "| one | as Reordered | 1e-07 | - | as Reordered | 1e-07 | - |" in page


# A launcher whose training process says when it took which turn, in a file that all runs share.
PLAYED = """#!/usr/bin/env python3
import json, socket, sys
words = json.load(open(sys.argv[3]))["spec"]["roles"][0]["template"]["spec"]["containers"][0]["command"]
gate = socket.socket(socket.AF_UNIX)
gate.connect(words[words.index("--gate") + 1])
told = {"step": 16}
for turn in range(ENDS):
    gate.sendall(json.dumps(told).encode() + b"\\n")
    assert gate.recv(1) == b"g"
    with open("../turns", "a") as file:
        file.write(f"{__import__('os').getcwd().rpartition('/')[2]}\\n")
    told = {"seconds": 0.5, "explained": {}, "step": turn}
"""


def played(folder: Path, ends: int) -> running.Place:
    (folder / "build" / "bin").mkdir(parents=True)
    program = folder / "build" / "bin" / "paceline"
    program.write_text(PLAYED.replace("ENDS", str(ends)))
    program.chmod(0o755)
    return running.Place(folder / "build", folder, Path(sys.executable))


SMALL = Recipe("ddp_loop", "played", HELPED[0], 1, 1, WARM_UP + 16)


def test_runs_take_turns(tmp_path: Path) -> None:
    runs = running.measure(SMALL, tmp_path / "runs", played(tmp_path, 3))
    assert {name: run.windows for name, run in runs.items()} == dict.fromkeys(runs, [0.5, 0.5])
    names = list(running.JOB)
    turns = (tmp_path / "runs" / "turns").read_text().split()
    assert turns == [*names, *names[1:], *names[:1], *names]


def test_a_run_that_ends_early_is_told_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(running.Failed, match="ddp_loop, without: it ended before its last window"):
        running.measure(SMALL, tmp_path / "runs", played(tmp_path, 1))
