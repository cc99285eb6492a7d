# SPDX-License-Identifier: Apache-2.0
"""The examples in the docstrings of the public package run and show what they promise."""

from __future__ import annotations

import doctest
import importlib
import io
import os
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy
import PIL.Image
import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(
    0,
    str(
        Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release"))
        / "runtime"
        / "python"
    ),
)
import paceline  # noqa: E402 - where it lies is known only now
import paceline.amp  # noqa: E402
import paceline.graph  # noqa: E402
import paceline.loader  # noqa: E402
import paceline.ops  # noqa: E402
import paceline.optim  # noqa: E402
from paceline.loader import _patch as _loader_patch  # noqa: E402
from paceline.optim import _patch as _optim_patch  # noqa: E402

MODULES = (
    "paceline",
    "paceline.amp",
    "paceline.comm",
    "paceline.loader",
    "paceline.ops",
    "paceline.optim",
)


def public() -> list[Any]:
    found = []
    for name in MODULES:
        module = importlib.import_module(name)
        for member in module.__all__:
            found.append(pytest.param(getattr(module, member), id=f"{name}.{member}"))
    return found


@pytest.mark.parametrize("thing", public())
def test_examples(thing: Any, tmp_path: Path) -> None:
    if not callable(thing):
        return
    names = {"folder": tmp_path, "io": io, "numpy": numpy, "paceline": paceline, "PIL": PIL}
    names.update(tarfile=tarfile, torch=torch)
    runner = doctest.DocTestRunner(verbose=False)
    torch.manual_seed(1)
    try:
        for test in doctest.DocTestFinder(recurse=False).find(thing, globs=names):
            runner.run(test)
    finally:
        _optim_patch.uninstall()
        _loader_patch.uninstall()
    assert runner.failures == 0


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_has_a_docstring(name: str) -> None:
    module = importlib.import_module(name)
    bare = [
        member
        for member in module.__all__
        if callable(getattr(module, member)) and not getattr(module, member).__doc__
    ]
    assert bare == []
