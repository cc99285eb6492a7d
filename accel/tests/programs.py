# SPDX-License-Identifier: Apache-2.0
"""Fixtures: programs are run as the launcher runs ranks, with the built runtime on PYTHONPATH and a receiver of rings."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import rings

ROOT = Path(__file__).resolve().parents[2]

# Begins every program: a small model, a data set, and nothing of Paceline.
PRELUDE = """
import os, sys, time, threading
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

class Slow(Dataset):
    def __init__(self, size=32, wait=0.0):
        self.size, self.wait = size, wait
    def __len__(self):
        return self.size
    def __getitem__(self, index):
        if self.wait:
            time.sleep(self.wait)
        return torch.full((4,), float(index)), torch.tensor(float(index % 2))

def small():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

def loss_of(model, batch):
    return ((model(batch[0]).squeeze(1) - batch[1]) ** 2).mean()
"""


@dataclass
class Run:
    """A finished program: what its ranks printed and the rings they offered."""

    code: int
    output: str
    rings: list[rings.Ring] = field(default_factory=list)

    def only(self) -> rings.Ring:
        assert self.code == 0, self.output
        assert len(self.rings) == 1, f"{len(self.rings)} rings, expected one\n{self.output}"
        return self.rings[0]


Train = Callable[..., Run]


@pytest.fixture(scope="session")
def runtime() -> Path:
    folder = Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release")) / "runtime"
    assert (folder / "lib" / "libpaceline.so").exists(), (
        f"{folder} is not built: scripts/build release paceline_runtime"
    )
    return folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def train(runtime: Path, tmp_path: Path) -> Iterator[Train]:
    """train(program, ranks=1, command=None, during=None, within=None, **environment) -> Run: `within` prefixes each rank."""

    def run(
        program: str,
        ranks: int = 1,
        command: list[str] | None = None,
        during: Callable[[rings.Receiver], None] | None = None,
        within: list[list[str]] | None = None,
        **extra: str,
    ) -> Run:
        script = tmp_path / "train.py"
        script.write_text(PRELUDE + textwrap.dedent(program))
        with rings.Receiver() as receiver:
            environment = {**rings.environment(runtime, receiver.path), "MASTER_ADDR": "127.0.0.1", **extra}
            environment.setdefault("MASTER_PORT", str(free_port()))
            outputs = [""] * ranks
            processes = [
                subprocess.Popen(
                    [*(within[rank] if within else []), *(command or [sys.executable, str(script)])],
                    cwd=tmp_path,
                    env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                for rank in range(ranks)
            ]

            def read(rank: int) -> None:
                try:
                    outputs[rank] = processes[rank].communicate(timeout=120)[0]
                except subprocess.TimeoutExpired:
                    processes[rank].kill()
                    outputs[rank] = processes[rank].communicate()[0] + f"rank {rank} hung and was killed\n"

            readers = [threading.Thread(target=read, args=(rank,)) for rank in range(ranks)]
            for reader in readers:
                reader.start()
            if during is not None:
                during(receiver)
            for reader in readers:
                reader.join()
            codes = [process.returncode for process in processes]
        return Run(max(codes, key=abs), "".join(outputs), sorted(receiver.rings, key=lambda ring: ring.rank))

    yield run
