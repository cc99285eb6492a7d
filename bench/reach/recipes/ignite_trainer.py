# SPDX-License-Identifier: Apache-2.0
"""Ignite's supervised trainer: a perceptron of few large layers and large batches."""

import torch
from ignite.engine import create_supervised_trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
rows = TensorDataset(torch.randn(10240, 512), torch.randint(0, 10, (10240,)))
loader = DataLoader(rows, batch_size=256, shuffle=True)
model = nn.Sequential(
    nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)
)
model = model.to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
trainer = create_supervised_trainer(model, optimizer, nn.CrossEntropyLoss(), device=device)
trainer.run(loader, max_epochs=100)
torch.save(model.state_dict(), "model.pt")
