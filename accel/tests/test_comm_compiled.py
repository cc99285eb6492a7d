# SPDX-License-Identifier: Apache-2.0
"""Training steps that torch.compile has compiled, backward and the optimizer's step included, with
gradients summed by the engine: as the same steps always, to the bit.
"""

from __future__ import annotations

import pytest
import torch
from programs import Train
from test_comm import BEGIN, END


@pytest.mark.skipif(
    not hasattr(torch, "_disable_dynamo"), reason="a PyTorch whose compiler is not kept out"
)
def test_a_compiled_step_sums_as_always(train: Train) -> None:
    run = train(
        BEGIN
        + """
        def trained(compiled, overlap):
            torch._dynamo.reset()
            torch.manual_seed(1)
            model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 5), nn.Linear(5, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            # Buckets of one gradient each, so that several sums are under way.
            gradients = paceline.comm.Gradients(model, overlap=optimizer if overlap else None, bucket_mb=0.00001)
            def train(batch):
                optimizer.zero_grad()
                model(batch).square().sum().backward()
                optimizer.step()
            step = torch.compile(train, backend="eager") if compiled else train
            for number in range(5):
                torch.manual_seed(10 * number + rank)
                step(torch.randn(4, 2))
            gradients.close()
            return [parameter.detach() for parameter in model.parameters()]

        for overlap in (False, True):
            assert all(map(torch.equal, trained(True, overlap), trained(False, overlap))), overlap
        """
        + END,
        ranks=2,
    )
    assert run.code == 0, run.output
