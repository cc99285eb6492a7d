# SPDX-License-Identifier: Apache-2.0
"""The examples of frameworks whose packages are small: `make test` runs these, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case, check

CASES = [Case("xgboost", "xgboost", "xgboost-cpu", "collective")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.job)
def test_an_example_survives_the_kill_of_a_rank(build: Path, tmp_path: Path, case: Case) -> None:
    check(build, tmp_path, case)
