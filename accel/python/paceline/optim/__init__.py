# SPDX-License-Identifier: Apache-2.0
"""Optimizers that read and write each value once per step. They are subclasses of
torch.optim.Optimizer with PyTorch's own arguments, state and state_dict.

The library updates dense parameters of any shape in float32, bfloat16 and float16, on the CPU or on
one GPU of compute capability 8.0 or later. PyTorch's own code updates all others in the same step;
`paceline.explain()` says which, and why. Numerics class: Reordered.

A gradient scaler steps them as any other optimizer. `optimizer.scaled_step(scaler)` does what
`scaler.step(optimizer)` does, without the scaler's own pass over the gradients.
"""

from __future__ import annotations

from paceline.optim._layerwise import LAMB, LARS
from paceline.optim._offload import Offload
from paceline.optim._torch_like import SGD, Adam, AdamW

__all__ = ["LAMB", "LARS", "SGD", "Adam", "AdamW", "Offload"]
