# SPDX-License-Identifier: Apache-2.0
"""Unmodified trainers from PyPI, and training loops as people write them.

Each runs as it is first, then with all features on. In class Bitwise nothing may differ, and in
class Reordered only rounding may. paceline.explain() tells what was accelerated, and why the rest
was not. docs/train/acceleration.md shows the same table.
"""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import rings
import torch
from fork_server import ForkServer
from ports import free_port
from programs import finish

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
DOCUMENT = ROOT / "docs" / "train" / "acceleration.md"

MODES = {
    "off": {},
    "Bitwise": {
        "PACELINE_LOADER": "Auto",
        "PACELINE_OPTIMIZER": "Auto",
        "PACELINE_NUMERICS": "Bitwise",
    },
    "Reordered": {
        "PACELINE_LOADER": "Auto",
        "PACELINE_OPTIMIZER": "Auto",
        "PACELINE_NUMERICS": "Reordered",
    },
}
TITLES = {
    "transformers_trainer": "Transformers' `Trainer`",
    "lightning_trainer": "Lightning's `Trainer`",
    "accelerate_loop": "Accelerate",
    "gan": "a GAN with two optimizers",
    "lbfgs": "closures, LBFGS among them",
    "no_sync": "accumulation under `no_sync`, two ranks",
    "iterable": "an iterable dataset, bfloat16 weights",
    "compiled": "a model through `torch.compile`",
}
RANKS = {"no_sync": 2}

# A run differs from the next by these alone.
BEGINNING = """
import os, random
import numpy, torch
for seed in (random.seed, numpy.random.seed, torch.manual_seed):
    seed(5)
"""
# What is left behind for the comparison, by the program itself or its rank 0.
ENDING = """
import json
import paceline
if os.environ["RANK"] == "0":
    result["random"] = [torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()]
    torch.save(result, "result.pt")
    with open("explained.json", "w") as file:
        json.dump(paceline.explain(as_dict=True), file)
"""
rows: dict[str, str] = {}


def run(name: str, mode: str, server: ForkServer, runtime: Path, folder: Path) -> list[Any]:
    """The ranks of a program, started."""
    folder.mkdir()
    script = folder / "train.py"
    script.write_text(BEGINNING + (PROGRAMS / f"{name}.py").read_text() + ENDING)
    ranks = RANKS.get(name, 1)
    environment = {
        **rings.environment(runtime, str(folder / "nobody-listens.sock")),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(ranks),
        "TORCHINDUCTOR_CACHE_DIR": str(
            Path(sys.prefix) / "inductor"
        ),  # what an earlier run has compiled
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        **MODES[mode],
    }
    started = []
    for rank in range(ranks):
        output = folder / f"rank-{rank}.txt"
        with output.open("wb") as file:
            mine = {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            started.append((server.start(script, folder, mine, file.fileno()), output))
    return started


@pytest.mark.parametrize("name", TITLES)
def test_equal_to_what_it_is_without(
    name: str, fork_server: ForkServer, runtime: Path, tmp_path: Path
) -> None:
    if name == "compiled" and not (
        shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
    ):
        pytest.skip("torch.compile needs a C++ compiler on the CPU, and there is none")
    # They run side by side; what has to be compiled is compiled once.
    together = [["off"], ["Bitwise", "Reordered"]] if name == "compiled" else [list(MODES)]
    for modes in together:
        started = [run(name, mode, fork_server, runtime, tmp_path / mode) for mode in modes]
        for process, output in (rank for ranks in started for rank in ranks):
            code, said = finish(process, output, 300)
            assert code == 0, said
    results = {
        mode: torch.load(tmp_path / mode / "result.pt", weights_only=False) for mode in MODES
    }
    told = {mode: json.loads((tmp_path / mode / "explained.json").read_text()) for mode in MODES}

    assert results["off"]["weights"] and results["off"]["losses"]
    assert different(results["Bitwise"], results["off"]) == []
    assert results["Reordered"]["random"][1:] == results["off"]["random"][1:]
    assert torch.equal(results["Reordered"]["random"][0], results["off"]["random"][0])
    assert_near(results["Reordered"], results["off"])

    assert {feature["state"] for feature in told["Bitwise"].values()} == {"on", "off"}
    assert told["Bitwise"]["fused optimizers"]["reason"].startswith("PACELINE_NUMERICS is Bitwise")
    assert told["off"]["loader"]["seen"] == told["off"]["fused optimizers"]["seen"] == []
    fused = [
        entry for entry in told["Reordered"]["fused optimizers"]["seen"] if entry["state"] == "on"
    ]
    if not fused:
        assert different(results["Reordered"], results["off"]) == []
    rows[name] = row(TITLES[name], told["Reordered"])
    assert rows[name] in DOCUMENT.read_text(), (
        f"docs/train/acceleration.md has another line than this:\n{rows[name]}"
    )


def different(left: dict[str, Any], right: dict[str, Any]) -> list[str]:
    assert left["weights"].keys() == right["weights"].keys()
    names = [
        name
        for name, value in left["weights"].items()
        if not torch.equal(value, right["weights"][name])
    ]
    if left["losses"] != right["losses"]:
        names.append("losses")
    if left["random"][1:] != right["random"][1:] or not torch.equal(
        left["random"][0], right["random"][0]
    ):
        names.append("random state")
    return names


def assert_near(left: dict[str, Any], right: dict[str, Any]) -> None:
    """The bound that the optimizers themselves are held to in accel/tests, after a training. Of
    bfloat16 weights PyTorch rounds after each operation, and our step once: two units of 1.0.
    """
    bounds = {"rtol": 1e-4, "atol": 1e-5}
    for name, value in left["weights"].items():
        if value.dtype == torch.bfloat16:
            unit = torch.finfo(torch.bfloat16).eps
            bounds = {"rtol": 2 * unit, "atol": 2 * unit}
        torch.testing.assert_close(
            value, right["weights"][name], **bounds, msg=lambda m, n=name: f"{n}: {m}"
        )
    torch.testing.assert_close(
        torch.tensor(left["losses"]), torch.tensor(right["losses"]), **bounds
    )


def row(title: str, told: dict[str, Any]) -> str:
    """A line of the table: what became of the program's loaders and optimizers."""
    loaders, prefetch, optimizers = [], [], []
    for entry in told["loader"]["seen"]:
        name = entry["name"].rsplit(".", 1)[-1]
        ours = entry["state"] == "on"
        loaders.append(f"{name}: {'ours' if ours else entry['reason']}")
        if ours:
            prefetch.append(f"{name}: {entry['prefetch_reason'] or 'yes'}")
    for entry in told["fused optimizers"]["seen"]:
        name = entry["name"].rsplit(".", 1)[-1]
        optimizers.append(f"{name}: {'ours' if entry['state'] == 'on' else entry['reason']}")
    columns = [
        "<br>".join(dict.fromkeys(column)) or "-" for column in (loaders, prefetch, optimizers)
    ]
    return f"| {title} | {' | '.join(columns)} |"


def test_the_table_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Printed by every run, so that what a release accelerates can be read where it was tested."""
    with capsys.disabled():
        print(
            "\nprogram | its loaders | next epoch prefetched | its optimizers",
            *(line.strip("| ") for line in rows.values()),
            sep="\n",
        )
    if len(rows) < len(TITLES):
        warnings.warn(
            f"no line of {', '.join(TITLES.keys() - rows.keys())}: not run or failed", stacklevel=1
        )
    written = [
        line
        for line in DOCUMENT.read_text().splitlines()
        if any(f"| {title} |" in line for title in TITLES.values())
    ]
    assert len(written) == len(TITLES)
