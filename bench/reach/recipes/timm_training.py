# SPDX-License-Identifier: Apache-2.0
"""timm: its folder dataset, its loader with augmentation, its optimizer factory."""

import timm
import torch
from timm.data import create_dataset, create_loader
from timm.optim import create_optimizer_v2
from torch import nn

torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dataset = create_dataset("", root="data/pictures")
loader = create_loader(
    dataset,
    input_size=(3, 224, 224),
    batch_size=16,
    is_training=True,
    num_workers=1,
    use_prefetcher=device.type == "cuda",
    device=device,
)
model = timm.create_model("mobilenetv3_small_050", num_classes=8).to(device)
optimizer = create_optimizer_v2(model, opt="sgd", lr=0.01, momentum=0.9)
measure = nn.CrossEntropyLoss()
model.train()
for _ in range(100):
    for inputs, targets in loader:
        inputs, targets = inputs.to(device), targets.to(device)
        loss = measure(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
torch.save(model.state_dict(), "model.pt")
