# SPDX-License-Identifier: Apache-2.0
"""Segmentation Models PyTorch: a Unet on pictures and masks."""

from pathlib import Path

import numpy as np
import segmentation_models_pytorch as smp
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Masks(Dataset):
    def __init__(self):
        self.pictures = sorted(Path("data/pictures").glob("*/*.jpg"))

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        path = self.pictures[index]
        picture = np.asarray(Image.open(path).resize((96, 96)), dtype=np.float32) / 255
        mask = np.asarray(Image.open(f"data/masks/{path.stem}.png").resize((96, 96)))
        return picture.transpose(2, 0, 1), (mask > 127).astype(np.float32)[None]


torch.manual_seed(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
loader = DataLoader(Masks(), batch_size=4, shuffle=True, num_workers=2)
model = smp.Unet("resnet18", encoder_weights=None, in_channels=3, classes=1).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
measure = smp.losses.DiceLoss(smp.losses.BINARY_MODE, from_logits=True)
model.train()
for _ in range(100):
    for inputs, masks in loader:
        loss = measure(model(inputs.to(device)), masks.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
torch.save(model.state_dict(), "model.pt")
