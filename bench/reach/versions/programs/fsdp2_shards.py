# SPDX-License-Identifier: Apache-2.0
"""FSDP2 on two ranks."""

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:  # before PyTorch 2.6
    from torch.distributed._composable.fsdp import fully_shard

mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
for layer in (model[0], model[2], model):
    fully_shard(layer, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(16):
    loss = model(torch.randn(8, 256)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
