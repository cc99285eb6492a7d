# SPDX-License-Identifier: Apache-2.0
"""The modules of scripts/ are imported from there."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
