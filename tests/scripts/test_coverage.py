# SPDX-License-Identifier: Apache-2.0
"""scripts/coverage runs each folder of Python tests by itself, and fails if a test fails."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def coverage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    loader = SourceFileLoader("scripts_coverage", str(ROOT / "scripts" / "coverage"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    monkeypatch.setattr(module, "REPORT", tmp_path)
    return module


def test_each_folder_is_run_by_itself_and_a_failure_fails_the_script(
    coverage: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        (coverage.REPORT / "python.json").write_text('{"files": {}}')
        return subprocess.CompletedProcess(command, int("tests/launch" in command), "python", "")

    monkeypatch.setattr(coverage.subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["coverage", "python"])
    assert coverage.main() == 1
    assert "pytest -q tests/launch" in capsys.readouterr().err.replace("-m ", "")
    runs = [set(call) & set(coverage.PYTHON_TESTS) for call in calls if "pytest" in call]
    assert runs == [{folder} for folder in coverage.PYTHON_TESTS]
