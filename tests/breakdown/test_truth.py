# SPDX-License-Identifier: Apache-2.0
"""Puts a known time into one phase of an ordinary program.

The program has a clock inside that phase and another around it. The recorded time lies between the
two on a machine of any speed, and within 5 % of the known time. At most 2 % of a step is left
unattributed. The shares are medians over the steps, so that one pause of the machine is no error.
"""

from __future__ import annotations

import statistics

import pytest
from programs import Run, Train

LOOP = """
class Clock:
    def __init__(self):
        self.seconds = 0.0
    def start(self):
        self.began = time.clock_gettime(time.CLOCK_MONOTONIC)
    def stop(self):
        self.seconds += time.clock_gettime(time.CLOCK_MONOTONIC) - self.began
    def __enter__(self):
        self.start()
    def __exit__(self, *_):
        self.stop()

# What is known to be spent, since a loaded machine makes a sleep longer; and all that the phase can hold.
known, around = Clock(), Clock()

def busy(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass

class Data(Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, index):
        if INJECT == "data_wait":
            with known:
                time.sleep(0.025)
        return torch.full((4,), float(index)), torch.tensor(float(index % 2))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = small()
    def forward(self, x):
        if INJECT == "forward":
            with known:
                busy(0.2)
        return self.layers(x)

class Weighty:
    def __reduce__(self):
        with known:
            time.sleep(0.2)
        return (int, ())

def told():
    print("told", known.seconds, around.seconds)
    known.seconds = around.seconds = 0.0

model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = iter(DataLoader(Data(), batch_size=8))
while True:
    around.start()
    batch = next(batches, None)
    if INJECT == "data_wait":
        around.stop()
        told()
    if batch is None:
        break
    # Forward begins where the batch was delivered, inside next().
    optimizer.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    if INJECT == "forward":
        around.stop()
    optimizer.step()
    if INJECT == "forward":
        told()
    if INJECT == "checkpoint":
        with around:
            torch.save([Weighty(), model.state_dict()], "checkpoint.pt")
        told()
"""
STEPS = 6


def judge(run: Run, phase: str) -> None:
    ring = run.only()
    assert len(ring.steps) == STEPS
    clocks = [
        tuple(map(float, line.split()[1:]))
        for line in run.output.splitlines()
        if line.startswith("told ")
    ]
    # Records and clocks are of the same six occasions, whether they belong to this step or to the
    # next.
    clocks = [pair for pair in clocks if pair[0] > 0]
    recorded = [record.host[phase] for record in ring.records if record.host[phase] > 0.1]
    assert len(clocks) == len(recorded) == STEPS, (clocks, recorded)
    for (known, around), seconds in zip(clocks, recorded, strict=True):
        assert known > 0.15, "too little was injected to judge"
        assert known <= seconds <= around
    assert (
        statistics.median(s / known for (known, _), s in zip(clocks, recorded, strict=True)) <= 1.05
    )
    assert (
        statistics.median(record.host["unattributed"] / record.wall for record in ring.steps)
        <= 0.02
    )


@pytest.mark.parametrize("phase", ["data_wait", "forward", "checkpoint"])
def test_time_put_into_a_phase_is_recorded_there(train: Train, phase: str) -> None:
    judge(train(f"INJECT = {phase!r}" + LOOP), phase)
