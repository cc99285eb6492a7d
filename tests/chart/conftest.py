# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from rendered import render


@pytest.fixture(scope="session")
def objects() -> list[dict[str, Any]]:
    return render()
