# SPDX-License-Identifier: Apache-2.0
"""skorch: a perceptron as a scikit-learn classifier, with its default options."""

import numpy as np
import torch
from skorch import NeuralNetClassifier
from torch import nn


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [20, 64, 64, 64, 64, 64]
        layers = [
            part
            for inner, outer in zip(widths, widths[1:])
            for part in (nn.Linear(inner, outer), nn.BatchNorm1d(outer), nn.ReLU())
        ]
        self.layers = nn.Sequential(*layers, nn.Linear(64, 2), nn.Softmax(dim=-1))

    def forward(self, inputs):
        return self.layers(inputs)


torch.manual_seed(1)
generator = np.random.default_rng(1)
inputs = generator.standard_normal((20480, 20), dtype=np.float32)
labels = (inputs.sum(axis=1) > 0).astype(np.int64)
net = NeuralNetClassifier(
    Perceptron,
    max_epochs=100,
    lr=0.1,
    device="cuda" if torch.cuda.is_available() else "cpu",
    iterator_train__shuffle=True,
)
net.fit(inputs, labels)
torch.save(net.module_.state_dict(), "model.pt")
