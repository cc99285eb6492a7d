# SPDX-License-Identifier: Apache-2.0
"""Trains unmodified recipes of bench/reach on a GPU, without and with what `acceleration: {}` turns
on, and says what acted and what it gained, beside a control: the run without, once more. Recipes
whose packages this Python lacks are left out. Weights must agree as the classes say.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "reach"))

import figures  # noqa: E402
import reach  # noqa: E402
from catalogue import CATALOGUE, Recipe  # noqa: E402
from checks import Check, emit, run  # noqa: E402
from paceline._core import contract  # noqa: E402
from running import Place, Run, measure  # noqa: E402

WINDOWS = 6
RECIPES = {"transformers_trainer": "transformers", "timm_training": "timm"}
DATA = ("PIL", "tokenizers", "transformers")  # what the recipes' data are made with
FEATURES = (
    contract.LOADER,
    contract.OPTIMIZER,
    contract.COMMUNICATION,
    contract.LOADER_WORKERS,
    contract.COMPILE,
    contract.OPERATORS,
)


class Alone(Run):
    """A run without a launcher, whose part is taken here."""

    def _command(self) -> list[str]:
        return self.training()

    def _environment(self) -> dict[str, str]:
        environment = {**super()._environment(), **dict.fromkeys(FEATURES, "Auto")}
        python = self.place.build / "runtime" / "python"
        environment["PYTHONPATH"] = f"{python / 'site'}:{python}"
        if self.variant == "with":
            environment.pop(contract.DISABLE, None)
        return environment


def trained(recipe: Recipe, place: Place) -> None:
    with tempfile.TemporaryDirectory() as folder:
        variants = ("without", "again", "with")
        runs = measure(recipe, Path(folder), place, WINDOWS, variants, Alone)
        explained = runs["with"].told["explained"]
        repeated, early = reach.apart(runs, "with")
        verdict = figures.verdict(repeated, early, "Reordered")
        row = {
            "recipe": recipe.name,
            "acted": figures.acted(explained),
            "declined": figures.declined(explained),
            "parts": figures.parts(explained),
            "gain": reach.gain_of(runs, "with"),
            "control": reach.gain_of(runs, "again"),
            "weights": verdict,
            "tuning_s": round(runs["with"].tuning, 1),
        }
        emit(row)
        assert row["acted"], row["declined"]
        assert verdict != "differs", (repeated, early)


def is_there(recipe: Recipe) -> bool:
    """Whether this Python has the packages of the recipe and of the data."""
    needed = (RECIPES.get(recipe.name), *DATA)
    return all(name and importlib.util.find_spec(name) for name in needed)


def check_of(recipe: Recipe, place: Place) -> Check:
    def check() -> None:
        trained(recipe, place)

    check.__name__ = f"{recipe.package} trains as it is"
    return check


if __name__ == "__main__":
    there = [one for one in CATALOGUE if is_there(one)]
    if not there:
        print(f"left out: no recipe's packages are here: {', '.join(DATA)} and one of its own")
        sys.exit()
    with tempfile.TemporaryDirectory() as data:
        subprocess.run([sys.executable, ROOT / "bench" / "reach" / "data.py", data], check=True)
        place = Place(
            ROOT / os.environ.get("PACELINE_BUILD_DIR", "build/gpu"),
            Path(data),
            Path(sys.executable),
        )
        sys.exit(run([check_of(one, place) for one in there]))
