# SPDX-License-Identifier: Apache-2.0
"""A loop of our own with FSDP2 on two ranks: a transformer sharded layer by layer."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

gpu = torch.cuda.is_available()
if gpu:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
device = torch.device("cuda" if gpu else "cpu")
mesh = init_device_mesh(device.type, (int(os.environ["WORLD_SIZE"]),))
torch.manual_seed(1)
layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
encoder = nn.TransformerEncoder(layer, 6)
model = nn.Sequential(encoder, nn.Flatten(), nn.Linear(16 * 256, 10)).to(device)
for part in encoder.layers:
    fully_shard(part, mesh=mesh)
fully_shard(model, mesh=mesh)
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
options = StateDictOptions(full_state_dict=True, cpu_offload=True)
whole = get_model_state_dict(model, options=options)
if dist.get_rank() == 0:
    torch.save(whole, "model.pt")
dist.destroy_process_group()
