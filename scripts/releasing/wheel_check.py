# SPDX-License-Identifier: Apache-2.0
"""Uses the paceline that this interpreter has installed (scripts/wheel).

It checks the version, the library, a fused step of AdamW, an epoch of a loader, what explain()
tells, and the examples of some public functions.
"""

from __future__ import annotations

import doctest
import io
import re
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import paceline
import paceline.amp
import PIL.Image
import torch
from paceline import loader, optim
from paceline._core import library

ROOT = Path(__file__).resolve().parents[2]


def check_version() -> None:
    said = re.search(r"project\(paceline VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert said is not None and paceline.__version__ == said[1], paceline.__version__


def check_library(installed: Path) -> None:
    assert Path(library.path()) == installed / "lib" / "libpaceline.so", library.path()
    library.opened()


def check_step() -> None:
    ours, theirs = (torch.nn.Parameter(torch.arange(1000.0)) for _ in range(2))
    optimizers = optim.AdamW([ours], lr=0.1), torch.optim.AdamW([theirs], lr=0.1)
    for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    torch.testing.assert_close(ours, theirs)
    (told,) = paceline.explain(as_dict=True)["fused optimizers"]["seen"]
    assert told["fused_tensors"] == 1, told


def check_epoch() -> None:
    rows = torch.utils.data.TensorDataset(torch.arange(8.0)[:, None].expand(8, 8192).contiguous())
    made: Any = loader.DataLoader(rows, batch_size=2, num_workers=2)
    assert [batch[:, 0].tolist() for (batch,) in made] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    (told,) = paceline.explain(as_dict=True)["loader"]["seen"]
    assert told["in_slabs"] == 4, told


def check_examples() -> None:
    runner = doctest.DocTestRunner(verbose=False)
    public: tuple[Any, ...] = (paceline.accelerate, paceline.explain, paceline.step, optim.AdamW)
    for example in (*public, loader.ImageShards):
        with tempfile.TemporaryDirectory() as folder:
            names = {"folder": Path(folder), "io": io, "tarfile": tarfile, "PIL": PIL}
            names.update(paceline=paceline, torch=torch)
            for test in doctest.DocTestFinder(recurse=False).find(example, globs=names):
                runner.run(test)
    assert runner.tries > 0 and runner.failures == 0


def main() -> int:
    installed = Path(paceline.__file__).parent
    assert ROOT not in installed.parents or "site-packages" in installed.parts, installed
    assert (installed / "py.typed").exists()
    check_version()
    check_library(installed)
    check_step()
    check_epoch()
    check_examples()
    print(f"paceline {paceline.__version__} with PyTorch {torch.__version__}: works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
