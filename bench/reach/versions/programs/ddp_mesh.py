# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel in the group of a device mesh, which makes the default group itself."""

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(1)
model = DistributedDataParallel(nn.Linear(256, 256), process_group=mesh.get_group())
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(16):
    loss = model(torch.randn(8, 256)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
