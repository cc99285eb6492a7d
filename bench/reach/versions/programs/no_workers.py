# SPDX-License-Identifier: Apache-2.0
"""A loader without workers, for two epochs."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
model = nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = TensorDataset(torch.randn(320, 64), torch.randint(0, 10, (320,)))
loader = DataLoader(rows, batch_size=8, shuffle=True)
for _ in range(2):
    for inputs, targets in loader:
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
