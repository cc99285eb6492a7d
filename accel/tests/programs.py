# SPDX-License-Identifier: Apache-2.0
"""Fixtures: programs are run as the launcher runs ranks, with the built runtime on PYTHONPATH and a
receiver of rings.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

import pytest
import rings
from fork_server import ForkServer
from ports import free_port
from rings import Ring

ROOT = Path(__file__).resolve().parents[2]

# Begins every program: a small model, a data set, and nothing of Paceline. Programs fork, as all did
# before Python 3.14: they have no `if __name__ == "__main__"`, which other start methods want.
PRELUDE = """
import multiprocessing, os, sys, time, threading
if sys.version_info >= (3, 14):
    multiprocessing.set_start_method("fork", force=True)
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
    rings: list[Ring] = field(default_factory=list)

    def only(self) -> Ring:
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


@pytest.fixture
def fake_device(runtime: Path, tmp_path: Path) -> dict[str, str]:
    """Where programs find a driver of a GPU that is not there (fake_cuda/fake_cuda.cpp), as FAKE, and
    modules that it takes.
    """
    driver = runtime.parent / "accel" / "tests" / "fake_cuda" / "libcuda.so.1"
    assert driver.exists(), f"{driver} is not built: scripts/build release fake_cuda"
    modules = tmp_path / "modules"
    modules.mkdir()
    for module in ("attention", "fcos3d", "optim", "simota"):
        (modules / f"{module}-cuda13-sm_90.cubin").write_text("only the fake driver takes it")
    return {"FAKE": str(driver), "PACELINE_KERNELS": str(modules)}


class Process(Protocol):
    """What subprocess.Popen and fork_server.Forked have in common."""

    def wait(self, timeout: float) -> int: ...
    def kill(self) -> None: ...


Start = Callable[[list[str], dict[str, str], IO[bytes]], Process]


def finish(process: Process, output: Path, patience_s: float = 120) -> tuple[int, str]:
    """Exit code and output of a rank; of one that hangs, so too."""
    try:
        code, ending = process.wait(patience_s), ""
    except subprocess.TimeoutExpired:
        process.kill()
        code, ending = (
            process.wait(patience_s),
            f"{output.name} hung for {patience_s} s and was killed\n",
        )
    return code, output.read_text() + ending


def trainer(runtime: Path, folder: Path, start: Start) -> Train:
    """train(program, ranks=1, command=None, during=None, within=None, **environment) -> Run:
    `within` prefixes each rank.
    """

    def train(
        program: str,
        ranks: int = 1,
        command: list[str] | None = None,
        during: Callable[[rings.Receiver], None] | None = None,
        within: list[list[str]] | None = None,
        **extra: str,
    ) -> Run:
        script = folder / "train.py"
        script.write_text(PRELUDE + textwrap.dedent(program))
        with rings.Receiver() as receiver:
            environment = {
                **rings.environment(runtime, receiver.path),
                "MASTER_ADDR": "127.0.0.1",
                # No rank ends while another is still connecting: PyTorch 2 has no barrier of its own.
                "TORCH_DIST_INIT_BARRIER": "1",
                **extra,
            }
            environment.setdefault("MASTER_PORT", str(free_port()))
            outputs = [folder / f"rank-{rank}.txt" for rank in range(ranks)]
            processes = []
            for rank, output in enumerate(outputs):
                mine = {
                    **environment,
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(ranks),
                }
                whole = [
                    *(within[rank] if within else []),
                    *(command or [sys.executable, str(script)]),
                ]
                with output.open("wb") as file:
                    processes.append(start(whole, mine, file))
            if during is not None:
                during(receiver)
            ends = [
                finish(process, output) for process, output in zip(processes, outputs, strict=True)
            ]
        codes, said = zip(*ends, strict=True)
        return Run(
            max(codes, key=abs), "".join(said), sorted(receiver.rings, key=lambda ring: ring.rank)
        )

    return train


@pytest.fixture
def train(runtime: Path, tmp_path: Path) -> Train:
    """Programs as the launcher starts them."""

    def start(command: list[str], environment: dict[str, str], output: IO[bytes]) -> Process:
        return subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=output, stderr=subprocess.STDOUT
        )

    return trainer(runtime, tmp_path, start)


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    server = ForkServer()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def train_by_fork(runtime: Path, tmp_path: Path, fork_server: ForkServer) -> Train:
    """Programs in forks of a process with PyTorch in it: quicker, for what does not depend on how
    the runtime gets in.
    """

    def start(command: list[str], environment: dict[str, str], output: IO[bytes]) -> Process:
        assert command[0] == sys.executable and len(command) == 2, command
        return fork_server.start(Path(command[1]), tmp_path, environment, output.fileno())

    return trainer(runtime, tmp_path, start)
