# SPDX-License-Identifier: Apache-2.0
"""Two ranks of DistributedDataParallel that accumulate three batches before they sum their
gradients.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.manual_seed(1)
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(
    nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
rows = TensorDataset(torch.randn(60, 8), torch.randn(60, 1))
sampler = DistributedSampler(rows)
loader = DataLoader(rows, batch_size=5, sampler=sampler, num_workers=1, persistent_workers=True)
losses = []
for epoch in range(2):
    sampler.set_epoch(epoch)
    for number, (inputs, targets) in enumerate(loader, 1):
        if number % 3:
            with model.no_sync():
                loss = nn.functional.mse_loss(model(inputs), targets)
                loss.backward()
        else:
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
result = {"weights": model.module.state_dict(), "losses": losses}
dist.destroy_process_group()
