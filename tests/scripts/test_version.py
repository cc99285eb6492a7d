# SPDX-License-Identifier: Apache-2.0
"""scripts/version names a file with another version, and changes all of them."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
loader = importlib.machinery.SourceFileLoader("version", str(ROOT / "scripts" / "version"))
spec = importlib.util.spec_from_loader("version", loader)
assert spec is not None
version = importlib.util.module_from_spec(spec)
loader.exec_module(version)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, _ in (version.SOURCE, *version.COPIES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_repository_has_one_version() -> None:
    assert list(version.complaints(ROOT)) == []


def test_another_version_is_named(tree: Path) -> None:
    chart = tree / "helm/paceline/Chart.yaml"
    chart.write_text(chart.read_text().replace("appVersion: ", "appVersion: 9"))
    (told,) = version.complaints(tree)
    assert told.startswith("helm/paceline/Chart.yaml: 9")


def test_every_file_is_changed(tree: Path) -> None:
    version.change(tree, "12.3.4")
    assert list(version.complaints(tree)) == []
    assert "appVersion: 12.3.4\n" in (tree / "helm/paceline/Chart.yaml").read_text()
    assert version.read(tree, *version.SOURCE) == "12.3.4"
