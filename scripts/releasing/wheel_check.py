# SPDX-License-Identifier: Apache-2.0
"""Uses the paceline that this interpreter has installed: its version, a fused step of AdamW, what
explain() tells, and the examples of the public functions (scripts/wheel).
"""

from __future__ import annotations

import doctest
import re
import sys
from pathlib import Path

import paceline
import paceline.amp
import torch
from paceline import optim

ROOT = Path(__file__).resolve().parents[2]


def check_version() -> None:
    said = re.search(r"project\(paceline VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert said is not None and paceline.__version__ == said[1], paceline.__version__


def check_step() -> None:
    ours, theirs = (torch.nn.Parameter(torch.arange(1000.0)) for _ in range(2))
    optimizers = optim.AdamW([ours], lr=0.1), torch.optim.AdamW([theirs], lr=0.1)
    for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    torch.testing.assert_close(ours, theirs)
    (told,) = paceline.explain(as_dict=True)["fused optimizers"]["seen"]
    assert told["fused_tensors"] == 1, told


def check_examples() -> None:
    runner = doctest.DocTestRunner(verbose=False)
    for function in (paceline.accelerate, paceline.explain, paceline.step, optim.AdamW):
        for test in doctest.DocTestFinder(recurse=False).find(
            function, globs={"paceline": paceline, "torch": torch}
        ):
            runner.run(test)
    assert runner.tries > 0 and runner.failures == 0


def main() -> int:
    installed = Path(paceline.__file__).parent
    assert ROOT not in installed.parents or "site-packages" in installed.parts, installed
    assert (installed / "py.typed").exists()
    check_version()
    check_step()
    check_examples()
    print(f"paceline {paceline.__version__} with PyTorch {torch.__version__}: works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
