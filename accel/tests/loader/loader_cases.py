# SPDX-License-Identifier: Apache-2.0
"""Every parity case. Each notes its batches and the random state, with any class of loaders."""

from __future__ import annotations

from typing import Any

import cases_of_batches
import cases_of_orders
import cases_of_passes
from cases_of_passes import CHANGED
from parity import CASES, LARGE, TORCH, Rows, Stream, difference, seed

__all__ = ["CASES", "LARGE", "TORCH", "Rows", "Stream", "difference", "observed"]
PARTS = (cases_of_orders, cases_of_batches, cases_of_passes)  # importing them fills CASES


def observed(name: str, kind: Any) -> list[Any]:
    """Runs a case from the same start, and returns what it saw."""
    seed()
    CHANGED[0] = 1.0
    return CASES[name](kind)
