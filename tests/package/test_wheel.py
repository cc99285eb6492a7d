# SPDX-License-Identifier: Apache-2.0
"""The wheel that scripts/wheel builds, installed in a fresh environment of each PyTorch version.

scripts/wheel itself refuses a library that needs a newer glibc than the tag says.
"""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECK = ROOT / "scripts" / "releasing" / "wheel_check.py"
DEBIAN = "/usr/bin/python3"
TAG = "py3-none-manylinux_2_31_x86_64"


def ran(*command: str | Path, cwd: Path = ROOT) -> str:
    """What a command prints. It sees no other paceline than the one that is installed."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONPATH" and not name.startswith("PACELINE_")
    }
    answer = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(ran("scripts/wheel", tmp_path_factory.mktemp("wheels")).splitlines()[-1])


@pytest.fixture
def debian(tmp_path: Path) -> Path:
    """A new environment with Debian's PyTorch."""
    home = tmp_path / "environment"
    ran(DEBIAN, "-m", "venv", "--system-site-packages", "--without-pip", home)
    return home / "bin" / "python"


@pytest.fixture
def pinned(tmp_path: Path) -> Path:
    """A new environment with the PyTorch of scripts/pytorch-venv."""
    home, torch = tmp_path / "environment", ran("scripts/pytorch-venv").strip()
    ran(torch, "-m", "venv", "--without-pip", home)
    packages = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    folder = Path(ran(home / "bin" / "python", "-c", packages).strip())
    (folder / "torch.pth").write_text(ran(torch, "-c", packages))
    return home / "bin" / "python"


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    assert wheel.name.endswith(f"-{TAG}.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (information,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
        entry_points = archive.read(f"{information}/entry_points.txt").decode()
        assert f"Tag: {TAG}" in archive.read(f"{information}/WHEEL").decode()
    assert "[torch.backends]" in entry_points
    assert "[lightning.pytorch.callbacks_factory]" in entry_points
    root = ROOT / "accel" / "python"
    sources = {str(path.relative_to(root)) for path in (root / "paceline").rglob("*.py")}
    others = {name for name in names if not name.startswith(f"{information}/")} - sources
    assert sources <= set(names) and {"paceline/py.typed", "paceline/lib/libpaceline.so"} <= others
    folders = ("paceline/lib/", "paceline/kernels/")
    assert [name for name in others if not name.startswith(folders)] == ["paceline/py.typed"]


@pytest.mark.parametrize("environment", ["debian", "pinned"])
def test_the_wheel_works_where_it_is_installed(
    environment: str, wheel: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    python = request.getfixturevalue(environment)
    ran(DEBIAN, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    assert "works" in ran(python, CHECK, cwd=tmp_path)
