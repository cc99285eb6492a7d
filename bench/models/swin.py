# SPDX-License-Identifier: Apache-2.0
"""Swin-T (Liu et al., arXiv 2103.14030) of timm on pictures of 224 x 224, with AdamW."""

from __future__ import annotations

import timm
import torch
from task import Parts, Tensor
from torch import nn


class Training:
    def __init__(self, device: torch.device, _ours: bool) -> None:
        self.device, self.images = device, 64 if device.type == "cuda" else 2
        self.model = timm.create_model("swin_tiny_patch4_window7_224", num_classes=1000).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def batch(self) -> tuple[Tensor, Tensor]:
        pictures = torch.randn(self.images, 3, 224, 224, device=self.device)
        return pictures, torch.randint(0, 1000, (self.images,), device=self.device)

    def loss(self, batch: tuple[Tensor, Tensor], _parts: Parts) -> Tensor:
        pictures, labels = batch
        on_a_gpu = self.device.type == "cuda"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=on_a_gpu):
            return nn.functional.cross_entropy(self.model(pictures), labels)
