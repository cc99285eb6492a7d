# SPDX-License-Identifier: Apache-2.0
"""A Transformer encoder (Vaswani et al., arXiv 1706.03762, base) that fills in masked words, with
AdamW. A third of its numbers are the words, so its optimizer has much to do.
"""

from __future__ import annotations

import torch
from task import Parts, Tensor
from torch import nn

WORDS, WIDTH, LENGTH = 30_000, 512, 128


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)

    def forward(self, words: Tensor) -> Tensor:
        places = torch.arange(words.shape[1], device=words.device)
        found = self.layers(self.words(words) + self.places(places))
        scores: Tensor = nn.functional.linear(found, self.words.weight)
        return scores


class Training:
    def __init__(self, device: torch.device, _ours: bool) -> None:
        self.device, self.sentences = device, 64 if device.type == "cuda" else 4
        self.model = Words().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def batch(self) -> Tensor:
        return torch.randint(1, WORDS, (self.sentences, LENGTH), device=self.device)

    def loss(self, batch: Tensor, _parts: Parts) -> Tensor:
        hidden = torch.rand(batch.shape, device=self.device) < 0.15
        scores = self.model(batch.masked_fill(hidden, 0))
        return nn.functional.cross_entropy(scores[hidden], batch[hidden])
