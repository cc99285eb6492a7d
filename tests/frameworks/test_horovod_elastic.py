# SPDX-License-Identifier: Apache-2.0
"""A program that is written for Horovod's elastic driver, on a fixed number of ranks: it needs no
change, and after the death of a rank all ranks start again.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import jobs

PATIENCE_S = 300.0
PROGRAM = """
import os
import horovod.torch as hvd
import torch

hvd.init()
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.05), named_parameters=model.named_parameters()
)
step = 0
if os.path.exists("weights"):
    step, weights = torch.load("weights")
    model.load_state_dict(weights)
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=step)

@hvd.elastic.run
def train(state):
    print(f"rank {hvd.rank()} of {hvd.size()} begins at step {state.step}", flush=True)
    while state.step < 400:
        inputs = torch.randn(32, 4)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state.step += 1
        if state.step % 20 == 0:
            state.commit()
            if hvd.rank() == 0:
                torch.save((state.step, model.state_dict()), "weights.new")
                os.replace("weights.new", "weights")
                print(f"step {state.step}: loss {loss.item():.6f}", flush=True)
    return loss.item()

print(f"rank {hvd.rank()} ends at step 400, loss {train(state):.6f}", flush=True)
"""


def test_an_elastic_program_runs_on_a_fixed_number_of_ranks(build: Path, tmp_path: Path) -> None:
    python = jobs.environment("horovod")
    program = tmp_path / "elastic.py"
    program.write_text(PROGRAM)
    trainer = {
        "name": "trainer",
        "image": "none",
        "command": ["horovodrun", "-np", "2", "python3", str(program)],
    }
    role = {"name": "worker", "replicas": 2, "template": {"spec": {"containers": [trainer]}}}
    job = {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "elastic"},
        "spec": {
            "framework": {"type": "Horovod", "processesPerReplica": 1},
            "roles": [role],
            "failurePolicy": {"maxRestarts": 1, "backoff": "100ms"},
        },
    }
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(job))
    run = jobs.start(build, file, python, tmp_path)
    try:
        run.wait_until("step 40", lambda: "step 40: loss" in run.output, PATIENCE_S)
        run.kill("elastic.py", "RANK=1")
        code = run.wait(PATIENCE_S)
    finally:
        run.end()
    assert code == 0, run.tail()
    assert run.restarts == 1, run.tail()
    for rank in (0, 1):
        begun = re.findall(rf"rank {rank} of 2 begins at step (\d+)$", run.output, re.MULTILINE)
        assert len(begun) == 2 and int(begun[1]) >= 40, run.tail()
        assert f"rank {rank} ends at step 400, loss 0.0" in run.output, run.tail()
