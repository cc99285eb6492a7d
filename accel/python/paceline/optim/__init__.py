# SPDX-License-Identifier: Apache-2.0
"""Optimizers that read and write each value once per step: torch.optim.Optimizer subclasses with
torch's own arguments, state and state_dict.

    optimizer = paceline.optim.AdamW(model.parameters(), lr=1e-3, max_grad_norm=1.0)

float32 parameters on the CPU or on one GPU, and bfloat16 and float16 ones with float32 moments and
master weights. What is not among these (other devices and dtypes, capturable on the CPU,
differentiable) is updated by torch's own code in the same step; `paceline.explain()` says what and
why. `Offload` keeps the state of any of them in the host's memory. Numerics class: Reordered.
"""

from __future__ import annotations

from paceline.optim._layerwise import LAMB, LARS
from paceline.optim._offload import Offload
from paceline.optim._torch_like import SGD, Adam, AdamW

__all__ = ["LAMB", "LARS", "SGD", "Adam", "AdamW", "Offload"]
