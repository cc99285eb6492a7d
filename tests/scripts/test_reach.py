# SPDX-License-Identifier: Apache-2.0
"""bench/reach: its list, its figures, its page, and how its runs take turns."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import figures
import pytest
import reach
import running
import table
from catalogue import CATALOGUE, HELPED, PAIRS, RECIPES, Recipe


def test_the_list_names_every_recipe_and_what_bounds_it() -> None:
    assert {one.name for one in CATALOGUE} == {path.stem for path in RECIPES.glob("*.py")}
    assert len(CATALOGUE) >= 16
    assert sum(one.bound in HELPED for one in CATALOGUE) >= 10
    for one in CATALOGUE:
        # What was kept is looked at again 128 steps later, and the bench begins at a window.
        assert 8 <= one.window <= 128 // (PAIRS + 1), one.name


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
    weights = {"verdict": "as Reordered", "early": 1e-7}
    part = {"name": "compile", "acted": True, "share": 0.5, "low": -0.05, "high": 0.2}
    return {
        **{"name": name, "package": name.title(), "bound": bound, "ranks": 1, "batch": 8},
        **{"acted": acted, "gain": told, "control": control, "lossy": told, "load": 2.5},
        **{"declined": {"loader": ["no workers"], "mixed precision": ["not asked"]}},
        **{"weights": weights, "weights_lossy": weights, "seconds": {"with": [1.0] * 10}},
        **{"parts": [{**part, "gain": 0.1, "measured": gain - 1.02}]},
        **{"tuning": {"seconds": 60.0, "cost": 30.0, "pays": 150.0 if gain > 1 else None}},
        **{"whole": {"predicted": 0.1, "measured": gain - 1}},
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
    looked |= {"whole": None, "parts": []}
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
    assert "| one | as Reordered | 1e-07 | as Reordered | 1e-07 |" in page
    assert "| one | compile | yes | 50 % | +10.0 % (-5.0 % to +20.0 %) | +18.0 % |" in page
    assert "| one | whole | | | +10.0 % | +20.0 % |" in page
    assert "| one | 60 s | 30 s | 150 s |" in page
    assert "| three | 60 s | 30 s | - |" in page
    # 0.18, 0.2, 0.28, 0.3, -0.12 and -0.1 were measured, and 0.1 was predicted of each.
    assert "| predictions within ± 5 points | 0 of 6 | 5 | missed |" in page
    assert "| mean error of the predictions | 16.3 % | below 19.7 % | met |" in page


PREDICTED = {"gain": 0.1, "low": 0.0, "high": 0.2, "share": 0.3}


def test_parts_have_what_was_predicted_and_measured() -> None:
    def told(*seen: dict[str, Any]) -> dict[str, Any]:
        return {**feature("on", "", *seen), "predicted": PREDICTED}

    kept = {"state": "on", "reason": "", "gain": 0.2, "cost_seconds": 30.0}
    left = {"state": "off", "reason": "", "gain": -0.03, "cost_seconds": 20.0}
    grown = {"state": "on", "reason": "", "step_seconds_before": 0.3, "step_seconds": 0.2}
    explained = {
        "compile": told(kept),
        "loader workers": told(grown),
        "fused optimizers": told({"state": "on", "reason": "", "steps": 7}),
        "communication": feature("on", ""),
    }
    found = {part["name"]: part for part in figures.parts(explained)}
    assert found["compile"] == {"name": "compile", "acted": True, **PREDICTED, "measured": 0.2}
    assert found["loader workers"]["measured"] == pytest.approx(0.5)
    assert found["fused optimizers"]["measured"] is None
    assert "communication" not in found, "nothing was predicted"

    row = {"parts": list(found.values()), "gain": {"median": 1.25}}
    assert figures.whole(row) == {
        "predicted": pytest.approx(1.1**3 - 1),
        "measured": pytest.approx(0.25),
    }
    assert figures.whole({**row, "gain": None}) is None
    assert figures.tuning(explained, 60.0) == {
        **{"seconds": 60.0, "cost": 30.0, "pays": pytest.approx(150.0)}
    }
    assert figures.tuning({"compile": told(left)}, 50.0) == {
        **{"seconds": 50.0, "cost": 20.0, "pays": None}
    }


def test_a_part_of_the_recipes_may_be_chosen() -> None:
    assert reach.choose([], "") == list(CATALOGUE)
    assert [one.name for one in reach.choose(["timm_training"], "")] == ["timm_training"]
    assert {one.bound for one in reach.choose([], "gradients")} == {HELPED[1]}
    assert reach.choose(["timm_training"], "gradients") == []


# A launcher whose training process says when it took which turn, in a file that all runs share.
PLAYED = """#!/usr/bin/env python3
import json, socket, sys
words = json.load(open(sys.argv[3]))["spec"]["roles"][0]["template"]["spec"]["containers"][0]["command"]
gate = socket.socket(socket.AF_UNIX)
gate.connect(words[words.index("--gate") + 1])
told = {"step": 16}
for turn in range(ENDS):
    gate.sendall(json.dumps(told).encode() + b"\\n")
    word = gate.recv(1)
    assert word in (b"g", b"t")
    with open("../turns", "a") as file:
        file.write(f"{__import__('os').getcwd().rpartition('/')[2]} {word.decode()}\\n")
    told = {"seconds" if word == b"g" else "tuned": 0.5, "explained": {}, "step": turn}
"""


def played(folder: Path, ends: int) -> running.Place:
    (folder / "build" / "bin").mkdir(parents=True)
    program = folder / "build" / "bin" / "paceline"
    program.write_text(PLAYED.replace("ENDS", str(ends)))
    program.chmod(0o755)
    return running.Place(folder / "build", folder, Path(sys.executable))


SMALL = Recipe("ddp_loop", "played", HELPED[0], 1, 1, 8)


def test_runs_take_turns(tmp_path: Path) -> None:
    runs = running.measure(SMALL, tmp_path / "runs", played(tmp_path, 5), most=2)
    assert {name: run.windows for name, run in runs.items()} == dict.fromkeys(runs, [0.5, 0.5])
    names = list(running.JOB)
    turns = (tmp_path / "runs" / "turns").read_text().splitlines()
    windows = [f"{name} g" for name in [*names, *names[1:], *names[:1]]]
    assert turns == ["with t", *windows], "trials end before the first window"
    assert runs["with"].tuning > 0 and runs["without"].tuning == 0


def test_a_run_that_ends_early_is_told_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(running.Failed, match="ddp_loop, with: it ended before its last window"):
        running.measure(SMALL, tmp_path / "runs", played(tmp_path, 2))
