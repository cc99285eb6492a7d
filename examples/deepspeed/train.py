# SPDX-License-Identifier: Apache-2.0
"""A small model with DeepSpeed's ZeRO stage 1: each process keeps a part of the optimizer state."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

STEPS, BATCH, FEATURES = 400, 32, 16

deepspeed.init_distributed("gloo", verbose=False)
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
network = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 1))
engine, *_ = deepspeed.initialize(
    model=network,
    model_parameters=network.parameters(),
    config={
        "train_micro_batch_size_per_gpu": BATCH,
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
        "zero_optimization": {"stage": 1},
    },
)
truth = torch.linspace(-1, 1, FEATURES)
random = torch.Generator().manual_seed(rank)  # each process has data of its own
for step in range(STEPS):
    inputs = torch.randn(BATCH, FEATURES, generator=random)
    loss = ((engine(inputs)[:, 0] - (inputs @ truth).tanh()) ** 2).mean()
    engine.backward(loss)
    engine.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step}: loss {loss.item():.6f}", flush=True)

weights = torch.cat([each.detach().flatten() for each in network.parameters()])
everyone = [torch.zeros_like(weights) for _ in range(ranks)]
dist.all_gather(everyone, weights)
assert ranks > 1 and all(torch.equal(each, weights) for each in everyone), "processes differ"
if rank == 0:
    print(f"trained by {ranks} processes: loss {loss.item():.6f}", flush=True)
dist.destroy_process_group()
