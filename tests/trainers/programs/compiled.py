# SPDX-License-Identifier: Apache-2.0
"""A model through torch.compile."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = DataLoader(
    TensorDataset(torch.randn(32, 8), torch.randn(32, 1)), batch_size=8, shuffle=True
)
losses = []
for _ in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(compiled(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
result = {"weights": model.state_dict(), "losses": losses}
