# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ANN001, ANN201, ANN204 - as people write such programs
"""Lightning's Trainer: a LightningModule with validation, gradient clipping and a learning-rate
schedule.
"""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
        self.losses = []

    def training_step(self, batch, number):
        loss = nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, number):
        self.losses.append(nn.functional.mse_loss(self.layers(batch[0]), batch[1]).item())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def rows(size):
    generator = torch.Generator().manual_seed(size)
    return TensorDataset(
        torch.randn(size, 8, generator=generator), torch.randn(size, 1, generator=generator)
    )


lightning.seed_everything(1, verbose=False)
model = Regression()
trainer = lightning.Trainer(
    accelerator="cpu",
    max_epochs=2,
    gradient_clip_val=1.0,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(
    model,
    DataLoader(rows(48), batch_size=8, shuffle=True, num_workers=2),
    DataLoader(rows(16), batch_size=8, num_workers=2, persistent_workers=True),
)
result = {"weights": model.state_dict(), "losses": model.losses}
