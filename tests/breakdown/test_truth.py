# SPDX-License-Identifier: Apache-2.0
"""Known time is put into one phase of an ordinary program, measured by the program itself with a clock of its own; the record
must say the same within 5 %, and leave no more than 2 % of the time unattributed."""

from __future__ import annotations

import pytest
from programs import Run, Train

LOOP = """
class Spent:
    # The truth: how long the injected part really took, since a loaded machine makes a sleep longer.
    seconds = 0.0
    def __enter__(self):
        self.began = time.perf_counter()
    def __exit__(self, *_):
        Spent.seconds += time.perf_counter() - self.began

def busy(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass

class Data(Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, index):
        if INJECT == "dataset":
            with Spent():
                time.sleep(0.025)
        return torch.full((4,), float(index)), torch.tensor(float(index % 2))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = small()
    def forward(self, x):
        if INJECT == "forward":
            with Spent():
                busy(0.2)
        return self.layers(x)

class Weighty:
    def __reduce__(self):
        with Spent():
            time.sleep(0.2)
        return (int, ())

model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(Data(), batch_size=8):
    optimizer.zero_grad()
    loss_of(model, batch).backward()
    optimizer.step()
    if INJECT == "save":
        torch.save([Weighty(), model.state_dict()], "checkpoint.pt")
print(Spent.seconds)
"""


def judge(run: Run, phase: str) -> None:
    ring = run.only()
    truth = float(run.output)
    assert truth > 1.0, "too little was injected to judge"
    assert ring.total(phase) == pytest.approx(truth, rel=0.05)
    assert ring.total("unattributed") <= 0.02 * ring.total()
    assert len(ring.steps) == 6


def test_a_slow_dataset_is_data_wait(train: Train) -> None:
    judge(train("INJECT = 'dataset'" + LOOP), "data_wait")


def test_a_busy_forward_is_forward(train: Train) -> None:
    judge(train("INJECT = 'forward'" + LOOP), "forward")


def test_a_slow_save_is_checkpoint(train: Train) -> None:
    judge(train("INJECT = 'save'" + LOOP), "checkpoint")
