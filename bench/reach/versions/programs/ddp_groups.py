# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel over gloo: in the default group, and in one of new_group."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(1)
models = [
    DistributedDataParallel(nn.Linear(256, 256)),
    DistributedDataParallel(nn.Linear(256, 256), process_group=dist.new_group([0, 1])),
]
for model in models:
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(16):
        loss = model(torch.randn(8, 256)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
