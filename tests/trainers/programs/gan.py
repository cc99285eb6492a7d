# SPDX-License-Identifier: Apache-2.0
"""Two networks and two optimizers in one step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
maker = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
judge = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
of_maker = torch.optim.Adam(maker.parameters(), lr=2e-3, betas=(0.5, 0.999))
of_judge = torch.optim.RMSprop(judge.parameters(), lr=2e-3)
loader = DataLoader(
    TensorDataset(torch.randn(48, 8)), batch_size=8, shuffle=True, num_workers=2, drop_last=True
)
measure = nn.BCEWithLogitsLoss()
losses = []
for _ in range(2):
    for (real,) in loader:
        ones, zeros = torch.ones(8, 1), torch.zeros(8, 1)
        fake = maker(torch.randn(8, 4))
        of_judge.zero_grad()
        loss = measure(judge(real), ones) + measure(judge(fake.detach()), zeros)
        loss.backward()
        of_judge.step()
        of_maker.zero_grad()
        other = measure(judge(fake), ones)
        other.backward()
        of_maker.step()
        losses += [loss.item(), other.item()]
result = {"weights": {**maker.state_dict(), **judge.state_dict(prefix="judge.")}, "losses": losses}
