# SPDX-License-Identifier: Apache-2.0
"""An ordinary PyTorch program with one fault, named by FAULT, that begins at step FROM. It knows
nothing of Paceline. A step computes little and sleeps, so that a busy machine changes it little.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import threading
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, get_worker_info

FAULT = os.environ["FAULT"]
FROM = int(os.environ.get("FROM", "40"))
LASTS = float(os.environ.get("LASTS", "15"))
RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
COMPUTES = 0.04
begun = False


def begin() -> None:
    """Tells the test when the fault begins."""
    global begun
    if not begun and RANK == WORLD - 1:
        print("fault begins", flush=True)
    begun = True


class Samples(Dataset):
    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if FAULT == "slow loader":
            time.sleep(0.01)
        if FAULT == "slow decode in one worker" and get_worker_info().id == 1:
            time.sleep(0.04)
        return torch.full((64,), float(index % 7))


class Model(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 1))
        self.slower = 0.0
        self.hangs = False

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.hangs:
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        if FAULT == "stolen processor time":
            until = time.thread_time() + COMPUTES
            while time.thread_time() < until:
                torch.mm(torch.ones(64, 64), torch.ones(64, 64))
        elif FAULT != "tiny batches":
            time.sleep(COMPUTES + self.slower)
        return self.layers(inputs)


class SlowFile(io.BytesIO):
    def write(self, data: Any) -> int:
        time.sleep(0.15)
        return super().write(data)


def stop_soon() -> None:
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGSTOP)


def at_fault(model: Any, loss: torch.Tensor, step: int) -> None:
    """After the optimizer of each step from FROM on."""
    last = RANK == WORLD - 1
    if step == FROM:
        begin()
    if FAULT == "slow rank" and last or FAULT == "becomes slower":
        model.module.slower = 0.02
    elif FAULT == "hung rank in a collective":
        if last:
            threading.Thread(target=stop_soon, daemon=True).start()
        else:
            time.sleep(1.5)
        dist.all_reduce(torch.ones(8))
    elif FAULT == "hung rank outside a collective" and last:
        model.module.hangs = True
    elif FAULT == "mismatched collectives":
        if last:
            dist.barrier()
        else:
            dist.all_gather([torch.ones(8) for _ in range(WORLD)], torch.ones(8))
    elif FAULT == "crash" and last:
        raise RuntimeError("the injected fault")
    elif FAULT == "out of memory" and last:
        held = []
        while True:
            held.append(torch.ones(16 << 20))
    elif FAULT == "loss.item() every step":
        loss.item()
    elif FAULT == "slow checkpoint" and step % 5 == 0:
        torch.save(model.state_dict(), SlowFile())
    elif FAULT == "full disk" and RANK == 0:
        with open("/dev/full", "wb") as file:
            torch.save(model.state_dict(), file)


def evaluate(model: Any) -> None:
    def slow(batch: list[torch.Tensor]) -> torch.Tensor:
        time.sleep(LASTS)
        return torch.stack(batch)

    with torch.no_grad():
        for inputs in DataLoader(Samples(), batch_size=8, collate_fn=slow):
            model.module(inputs)
            break


def train() -> None:
    workers = 2 if FAULT == "slow decode in one worker" else 0
    width = 2000 if FAULT == "slow link" else 32
    batch = 2 if FAULT == "tiny batches" else 8
    model: Any = Model(width)
    if WORLD > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for step, inputs in enumerate(DataLoader(Samples(), batch_size=batch, num_workers=workers), 1):
        optimizer.zero_grad()
        loss = model(inputs).mean()
        loss.backward()
        optimizer.step()
        if FAULT == "evaluation" and step == FROM:
            begin()
            evaluate(model)
        elif FAULT != "none" and step >= FROM:
            at_fault(model, loss, step)
        elif FAULT == "none" and step == FROM:
            begin()


torch.set_num_threads(1)
with contextlib.suppress(OSError):  # what else the machine does is not the fault
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    if FAULT != "stolen processor time":
        # Linux may weigh whole sessions, and priorities only within each. The job has its own.
        with open("/proc/self/autogroup", "w") as file:
            file.write("-20")
if FAULT == "stolen processor time":
    os.sched_setaffinity(0, {RANK % (os.cpu_count() or 1)})
if WORLD > 1:
    dist.init_process_group("gloo")
train()
