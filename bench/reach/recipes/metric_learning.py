# SPDX-License-Identifier: Apache-2.0
"""PyTorch Metric Learning: its MetricLossOnly trainer with its default loader."""

import torch
from pytorch_metric_learning import losses, trainers
from torch import nn
from torch.utils.data import TensorDataset

torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
trunk = nn.Sequential(
    nn.Conv2d(3, 16, 3, stride=2, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
).to(device)
embedder = nn.Linear(32, 64).to(device)
rows = TensorDataset(torch.randn(4096, 3, 32, 32), torch.randint(0, 20, (4096,)))
trainer = trainers.MetricLossOnly(
    models={"trunk": trunk, "embedder": embedder},
    optimizers={
        "trunk_optimizer": torch.optim.Adam(trunk.parameters(), lr=1e-4),
        "embedder_optimizer": torch.optim.Adam(embedder.parameters(), lr=1e-4),
    },
    batch_size=32,
    loss_funcs={"metric_loss": losses.TripletMarginLoss(margin=0.1)},
    dataset=rows,
    data_device=device,
)
trainer.train(num_epochs=100)
torch.save({**trunk.state_dict(prefix="trunk."), **embedder.state_dict()}, "model.pt")
