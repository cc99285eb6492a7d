# SPDX-License-Identifier: Apache-2.0
"""Hugging Face datasets: pictures of a folder, decoded as they are asked for, in a plain loop."""

import torch
from datasets import load_dataset
from torch import nn
from torch.utils.data import DataLoader
from torchvision import models, transforms

torch.manual_seed(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
preprocess = transforms.Compose([transforms.RandomResizedCrop(128), transforms.ToTensor()])


def prepare(rows):
    pictures = [preprocess(picture.convert("RGB")) for picture in rows["image"]]
    return {"pixel_values": pictures, "label": rows["label"]}


pictures = load_dataset("imagefolder", data_dir="data/pictures", split="train")
pictures.set_transform(prepare)
loader = DataLoader(pictures, batch_size=16, shuffle=True, num_workers=2)
model = models.squeezenet1_1(num_classes=8).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
model.train()
for _ in range(100):
    for batch in loader:
        answer = model(batch["pixel_values"].to(device))
        loss = nn.functional.cross_entropy(answer, batch["label"].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
torch.save(model.state_dict(), "model.pt")
