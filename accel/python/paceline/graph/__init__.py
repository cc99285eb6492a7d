# SPDX-License-Identifier: Apache-2.0
"""A whole training step as one CUDA graph: forward, backward and update in a single launch. It
helps steps of many small kernels, which take longer to launch than to run. Numerics class Bitwise:
the same kernels on the same values.
"""

from __future__ import annotations

from paceline.graph._report import Refused
from paceline.graph._step import WholeStep

__all__ = ["Refused", "WholeStep"]
