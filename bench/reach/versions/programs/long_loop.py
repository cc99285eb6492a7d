# SPDX-License-Identifier: Apache-2.0
"""A loop that is long enough for a compiler to be tried."""

import torch
from torch import nn

torch.manual_seed(1)
model = nn.Sequential(
    *(nn.Sequential(nn.Linear(128, 128), nn.LayerNorm(128), nn.GELU()) for _ in range(4))
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(20_000):
    loss = model(torch.randn(64, 128)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
