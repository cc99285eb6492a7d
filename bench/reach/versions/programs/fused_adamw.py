# SPDX-License-Identifier: Apache-2.0
"""AdamW with fused=True."""

import torch
from torch import nn

torch.manual_seed(1)
model = nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for _ in range(32):
    loss = model(torch.randn(8, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
