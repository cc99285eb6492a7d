# SPDX-License-Identifier: Apache-2.0
"""MMEngine's Runner: a ResNet on a folder of pictures, as its 15-minute tour writes it."""

import torch
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch import nn
from torchvision import models, transforms
from torchvision.datasets import ImageFolder


class MMResNet(BaseModel):
    def __init__(self):
        super().__init__()
        self.resnet = models.resnet18(num_classes=8)

    def forward(self, inputs, labels, mode):
        answer = self.resnet(inputs)
        if mode == "loss":
            return {"loss": nn.functional.cross_entropy(answer, labels)}
        return answer, labels


preprocess = transforms.Compose(
    [transforms.RandomResizedCrop(64), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
)
loader = {
    "batch_size": 16,
    "num_workers": 2,
    "persistent_workers": True,
    "sampler": {"type": "DefaultSampler", "shuffle": True},
    "collate_fn": {"type": "default_collate"},
    "dataset": ImageFolder("data/pictures", preprocess),
}
runner = Runner(
    model=MMResNet(),
    work_dir="work",
    train_dataloader=loader,
    optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.001, "momentum": 0.9}},
    train_cfg={"by_epoch": True, "max_epochs": 100},
    randomness={"seed": 1},
)
runner.train()
torch.save(runner.model.state_dict(), "model.pt")
