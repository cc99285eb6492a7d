# SPDX-License-Identifier: Apache-2.0
"""Mixed precision in one line (numerics class Lossy).

Level O1 keeps parameters and gradients in float32 and runs the forward pass under torch.autocast.
Level O2 has parameters and gradients of 16 bits, but for those of batch norms, and the optimizer
keeps float32 values behind them. In either case the model answers in float32, so the loss is
computed in it. bfloat16 needs no loss scaling; float16 does, by `LossScaler` or torch's GradScaler.
Both fold the unscaling into the step of paceline.optim.
"""

from __future__ import annotations

from paceline.amp._decorate import decorate
from paceline.amp._scaler import LossScaler

__all__ = ["LossScaler", "decorate"]
