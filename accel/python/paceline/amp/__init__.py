# SPDX-License-Identifier: Apache-2.0
"""Mixed precision in one line, before a learning-rate schedule is made and before the model is
wrapped (DDP):

    model, optimizer = paceline.amp.decorate(model, optimizer, level="O2")

O1: parameters and gradients stay float32, the forward pass runs under torch.autocast. O2:
parameters and gradients are of 16 bits too, but for those of batch norms; the optimizer keeps
float32 values behind them,
    which begin as the parameters were. torch's Adam, AdamW and SGD are exchanged for
    paceline.optim's, with their groups and state.

In either case the model answers in float32, so the loss is computed in it. Numerics class: Lossy.
bfloat16 needs no loss scaling; float16 does: LossScaler is torch.amp.GradScaler without the host
waiting for the device in each step. GradScaler works with every optimizer of paceline.optim too;
either folds the unscaling into the step.

Works on the caller's model in place, in the caller's thread; what it cannot do is an error before
anything has changed. In a job whose numerics are of a lesser class the model and the optimizer stay
as they are, and a line says so.
"""

from __future__ import annotations

from paceline.amp._decorate import decorate
from paceline.amp._scaler import LossScaler

__all__ = ["LossScaler", "decorate"]
