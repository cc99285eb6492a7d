# SPDX-License-Identifier: Apache-2.0
"""torchvision: a MobileNet on a folder of pictures, with loader and augmentation of its reference
scripts.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import models, transforms
from torchvision.datasets import ImageFolder

torch.manual_seed(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
preprocess = transforms.Compose(
    [
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.PILToTensor(),
        transforms.ConvertImageDtype(torch.float),
        transforms.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    ]
)
loader = DataLoader(
    ImageFolder("data/pictures", preprocess),
    batch_size=16,
    shuffle=True,
    num_workers=2,
    pin_memory=device == "cuda",
)
model = models.mobilenet_v3_small(num_classes=8).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
measure = nn.CrossEntropyLoss(label_smoothing=0.1)
model.train()
for _ in range(100):
    for inputs, targets in loader:
        inputs, targets = inputs.to(device), targets.to(device)
        loss = measure(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
torch.save(model.state_dict(), "model.pt")
