# SPDX-License-Identifier: Apache-2.0
"""A plain loop: AdamW, a loader with two workers."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.AdamW(model.parameters())
rows = TensorDataset(torch.randn(320, 64), torch.randint(0, 10, (320,)))
for inputs, targets in DataLoader(rows, batch_size=8, shuffle=True, num_workers=2):
    loss = nn.functional.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
