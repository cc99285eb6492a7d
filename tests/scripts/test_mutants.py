# SPDX-License-Identifier: Apache-2.0
"""The mutants' tables fit the source, and a mutant whose text has gone is named."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = """
[[mutant]]
name = "One"
fault = "it is one"
[[mutant.edits]]
file = "a.cpp"
find = "int a = 1;"
replace = "int a = 2;"
"""


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    loader = SourceFileLoader("scripts_mutants", str(ROOT / "scripts" / "mutants"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module  # a dataclass looks it up
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("part", ["operator", "agent"])
def test_every_mutant_fits_the_source(mutants: ModuleType, part: str) -> None:
    table = mutants.read(part)
    assert len(table) >= 30
    assert mutants.complaints(table) == []


def test_a_text_that_has_gone_is_named(mutants: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "part.toml").write_text(TABLE)
    (tmp_path / "a.cpp").write_text("int a = 1;\n")
    table = mutants.read("part", tmp_path)
    assert mutants.complaints(table, tmp_path) == []
    (tmp_path / "a.cpp").write_text("int a = 3;\n")
    (complaint,) = mutants.complaints(table, tmp_path)
    assert complaint.startswith("One: its text 'int a = 1;' is 0 times in a.cpp")
    (tmp_path / "a.cpp").write_text("int a = 1;\nint a = 1;\n")
    assert "is 2 times in a.cpp" in mutants.complaints(table, tmp_path)[0]


def test_two_mutants_of_one_name_are_refused(mutants: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "part.toml").write_text(TABLE + TABLE)
    with pytest.raises(mutants.Failure, match="two mutants are named One"):
        mutants.read("part", tmp_path)


def test_the_first_failure_names_test_law_and_seed(mutants: ModuleType) -> None:
    output = (
        "[ RUN      ] Simulation.PodsDie\n"
        "tests/sim/sim_test.cpp:37: Failure\nseed 3000007, step 12: OneSpec: a-w-0-1 runs\n"
        "[  FAILED  ] Simulation.PodsDie (12 ms)\n"
    )
    assert mutants.first_failure(output) == "Simulation.PodsDie (OneSpec, seed 3000007)"
    assert mutants.first_failure("[ RUN      ] Plan.Ends\n") == "Plan.Ends (crashed)"
