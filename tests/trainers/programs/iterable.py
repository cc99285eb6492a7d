# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ANN001, ANN204 - as people write such programs
"""An iterable dataset that its workers divide, with a batch of the program's own class, and
bfloat16 weights.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Numbers(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        for value in range(info.id, 40, info.num_workers):
            yield torch.full((6,), value / 40) + torch.rand(6) / 10, torch.tensor([value / 40])


class Batch:
    def __init__(self, rows):
        self.inputs = torch.stack([row[0] for row in rows]).bfloat16()
        self.targets = torch.stack([row[1] for row in rows]).bfloat16()


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1)).bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
loader = DataLoader(Numbers(), batch_size=4, num_workers=2, collate_fn=Batch)
losses = []
for _ in range(2):
    for batch in loader:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(batch.inputs), batch.targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
result = {"weights": model.state_dict(), "losses": losses}
