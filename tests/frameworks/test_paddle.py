# SPDX-License-Identifier: Apache-2.0
"""The real PaddlePaddle in dynamic mode: its phases are marked without a change of the program."""

from __future__ import annotations

from pathlib import Path

import jobs
from programs import Train, runtime, train

__all__ = ["runtime", "train"]

# 12 steps of a loop without workers, 12 with two, 12 of `fit`, 6 with a gradient scaler.
PROGRAM = """
import time
import numpy as np
import paddle

class Rows(paddle.io.Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, index):
        time.sleep(0.001)
        return np.ones(4, np.float32), np.ones(1, np.float32)

def loader(workers=0):
    return paddle.io.DataLoader(Rows(), batch_size=8, num_workers=workers)

network = paddle.nn.Linear(4, 1)
weights = network.parameters()
for workers in (0, 2):
    adam = paddle.optimizer.AdamW(0.1, parameters=weights)
    for epoch in range(2):
        for inputs, targets in loader(workers):
            ((network(inputs) - targets) ** 2).mean().backward()
            adam.step()
            adam.clear_grad()
        paddle.save(network.state_dict(), "weights.pdparams")
model = paddle.Model(network)
model.prepare(paddle.optimizer.SGD(0.1, parameters=weights), paddle.nn.MSELoss())
model.fit(loader(), loader(), epochs=2, verbose=0)
scaler = paddle.amp.GradScaler(init_loss_scaling=8)
momentum = paddle.optimizer.Momentum(0.1, parameters=weights)
for inputs, targets in loader():
    loss = ((network(inputs) - targets) ** 2).mean()
    scaler.scale(loss).backward()
    scaler.step(momentum)
    scaler.update()
"""


def test_phases_of_a_loop_and_of_fit(train: Train, tmp_path: Path) -> None:
    program = tmp_path / "loops.py"
    program.write_text(PROGRAM)
    python = str(jobs.environment("paddle"))
    run = train("", command=[python, str(program)], PYTHONDONTWRITEBYTECODE="")
    ring = run.only()
    assert "paceline: " not in run.output, run.output
    assert [record.step for record in ring.steps] == list(range(1, 43)), run.output
    for phase in ("data_wait", "forward", "backward", "optimizer"):
        assert all(record.host[phase] > 0 for record in ring.steps), phase
    assert all(record.samples == 8 for record in ring.steps)
    saved = [record.step for record in ring.steps if record.host["checkpoint"] > 0]
    assert saved == [7, 13, 19, 25]
    evaluated = [record.step for record in ring.steps if record.host["evaluation"] > 0]
    assert evaluated == [31, 37]
