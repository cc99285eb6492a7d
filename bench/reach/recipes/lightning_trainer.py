# SPDX-License-Identifier: Apache-2.0
"""Lightning's Trainer with DDP on two ranks: a wide perceptron."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1)
        )

    def training_step(self, batch, number):
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.layers(inputs), targets)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-4)


lightning.seed_everything(1)
rows = TensorDataset(torch.randn(4096, 256), torch.randn(4096, 1))
loader = DataLoader(rows, batch_size=16, shuffle=True)
model = Regression()
trainer = lightning.Trainer(devices=2, strategy="ddp", max_steps=5000, enable_checkpointing=False)
trainer.fit(model, loader)
if trainer.is_global_zero:
    torch.save(model.state_dict(), "model.pt")
