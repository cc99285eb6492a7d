# SPDX-License-Identifier: Apache-2.0
"""Every Python that users' images have: the runtime's own code runs there, marks steps, and lets a
program go on whose PyTorch it does not know.

None of them has PyTorch here but the one that runs these tests; what follows from PyTorch's version
is tested with two of those.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import rings
from programs import Train

VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15")

STEPS = """
import pathlib, sys, time
import paceline

for source in pathlib.Path(paceline.__file__).parent.rglob("*.py"):
    compile(source.read_text(), str(source), "exec")
for step in range(4):
    time.sleep(0.002)
    paceline.step(step)
print("Python %d.%d" % sys.version_info[:2])
print(paceline.explain())
"""

STRANGE_TORCH = """
import torch
print("trained with", torch.__version__)
"""


def interpreter(version: str) -> str:
    """A Python of this version on PATH or among pyenv's that starts; skips where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [
        shutil.which(f"python{version}"),
        *map(str, sorted(pyenv.glob(f"{version}.*/bin/python{version}"))),
    ]
    for candidate in filter(None, found):
        # pyenv's shims are there and refuse.
        if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    raise pytest.skip.Exception(f"no Python {version} here")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_runtime_is_at_home(version: str, train: Train, tmp_path: Path) -> None:
    program = tmp_path / "steps.py"
    program.write_text(STEPS)
    run = train("", command=[interpreter(version), str(program)])
    assert [record.user_step for record in run.only().steps] == [1, 2, 3]
    assert f"Python {version}" in run.output


@pytest.mark.parametrize("version", VERSIONS)
def test_a_strange_pytorch_is_left_alone(
    version: str, train: Train, tmp_path: Path, runtime: Path
) -> None:
    (tmp_path / "site" / "torch").mkdir(parents=True)
    (tmp_path / "site" / "torch" / "__init__.py").write_text("__version__ = '1.0'\n")
    program = tmp_path / "strange.py"
    program.write_text(STRANGE_TORCH)
    path = f"{tmp_path / 'site'}{os.pathsep}{rings.environment(runtime, '')['PYTHONPATH']}"
    switches = dict.fromkeys(
        ("PACELINE_OPTIMIZER", "PACELINE_LOADER", "PACELINE_COMMUNICATION"), "Auto"
    )
    run = train(
        "",
        command=[interpreter(version), str(program)],
        PYTHONPATH=path,
        PACELINE_PRECISION="TF32",
        **switches,
    )
    assert run.code == 0 and "trained with 1.0" in run.output, run.output
    assert "tracing is off" in run.output and "loaders are left as they are" in run.output, (
        run.output
    )
    assert run.rings == []
