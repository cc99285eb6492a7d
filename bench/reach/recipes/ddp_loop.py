# SPDX-License-Identifier: Apache-2.0
"""A loop of our own with DistributedDataParallel on two ranks: AdamW, small batches."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if gpu else "gloo")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
torch.manual_seed(1)
layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
model = nn.Sequential(nn.TransformerEncoder(layer, 6), nn.Flatten(), nn.Linear(16 * 256, 10))
model = DistributedDataParallel(model.to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
rows = TensorDataset(torch.randn(1024, 16, 256), torch.randint(0, 10, (1024,)))
loader = DataLoader(rows, batch_size=4, sampler=DistributedSampler(rows))
model.train()
for _ in range(100):
    for inputs, targets in loader:
        loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), "model.pt")
dist.destroy_process_group()
