# SPDX-License-Identifier: Apache-2.0
"""A small PyTorch model with Horovod's DistributedOptimizer, which averages gradients over Gloo."""

import horovod.torch as hvd
import torch
from torch import nn

STEPS, BATCH, FEATURES = 400, 32, 16

hvd.init()
rank, ranks = hvd.rank(), hvd.size()
torch.manual_seed(1)
network = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(network.parameters(), lr=0.05), named_parameters=network.named_parameters()
)
hvd.broadcast_parameters(network.state_dict(), root_rank=0)
truth = torch.linspace(-1, 1, FEATURES)
random = torch.Generator().manual_seed(rank)  # each process has data of its own
for step in range(STEPS):
    inputs = torch.randn(BATCH, FEATURES, generator=random)
    loss = ((network(inputs)[:, 0] - (inputs @ truth).tanh()) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step}: loss {loss.item():.6f}", flush=True)

weights = torch.cat([each.detach().flatten() for each in network.parameters()])
everyone = hvd.allgather(weights[None])
assert ranks > 1 and (everyone == weights).all(), "processes differ"
if rank == 0:
    print(f"trained by {ranks} processes: loss {loss.item():.6f}", flush=True)
hvd.shutdown()
