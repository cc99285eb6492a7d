# SPDX-License-Identifier: Apache-2.0
"""The API client of the cluster tests serves here too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
