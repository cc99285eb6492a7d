# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ANN201, B023 - as people write such programs
"""An optimizer that calls its closure several times a step, and one that is given a closure though
it needs none.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
loader = DataLoader(
    TensorDataset(torch.randn(32, 6), torch.randn(32, 1)), batch_size=16, num_workers=1
)
result = {"weights": {}, "losses": []}
for kind, options in (
    (torch.optim.LBFGS, {"lr": 0.1}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
):
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
    optimizer = kind(model.parameters(), **options)
    for _ in range(2):
        for inputs, targets in loader:

            def closure():
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(inputs), targets)
                loss.backward()
                return loss

            result["losses"].append(optimizer.step(closure).item())
    result["weights"].update(model.state_dict(prefix=f"{kind.__name__}."))
