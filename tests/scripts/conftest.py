# SPDX-License-Identifier: Apache-2.0
"""The modules of scripts/, bench/reach and tests/reliability are imported from there."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(ROOT / "scripts"),
    str(ROOT / "bench" / "reach"),
    str(ROOT / "bench" / "reach" / "versions"),
    str(ROOT / "tests" / "reliability"),
]
