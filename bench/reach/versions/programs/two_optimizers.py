# SPDX-License-Identifier: Apache-2.0
"""AdamW with foreach=True, and AdamW of bfloat16 parameters: a model of each."""

import torch
from torch import nn

torch.manual_seed(1)
models = [nn.Linear(64, 64), nn.Linear(64, 64, dtype=torch.bfloat16)]
optimizers = [
    torch.optim.AdamW(models[0].parameters(), foreach=True),
    torch.optim.AdamW(models[1].parameters()),
]
for _ in range(32):
    for model, optimizer in zip(models, optimizers):
        inputs = torch.randn(8, 64, dtype=model.weight.dtype)
        loss = model(inputs).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
