# SPDX-License-Identifier: Apache-2.0
"""Lightning Fabric with DDP on two ranks: a small vision transformer."""

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import VisionTransformer

fabric = Fabric(devices=2, strategy="ddp")
fabric.launch()
fabric.seed_everything(1)
model = VisionTransformer(
    image_size=32,
    patch_size=16,
    num_layers=6,
    num_heads=4,
    hidden_dim=256,
    mlp_dim=1024,
    num_classes=10,
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
model, optimizer = fabric.setup(model, optimizer)
rows = TensorDataset(torch.randn(1024, 3, 32, 32), torch.randint(0, 10, (1024,)))
loader = fabric.setup_dataloaders(DataLoader(rows, batch_size=4, shuffle=True))
model.train()
for _ in range(100):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        fabric.backward(loss)
        optimizer.step()
if fabric.is_global_zero:
    torch.save(model.module.state_dict(), "model.pt")
