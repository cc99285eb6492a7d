# SPDX-License-Identifier: Apache-2.0
"""spec.framework.launcher: Passthrough with a real torchrun as the user's command: two replicas,
two ranks each, real launchers.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from local import run_job

NEW = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 5)
# torchrun of PyTorch 1.13 does not find its own default for these on Python 3.11.
OUTPUT = {} if NEW else {"PET_TEE": "1", "PET_REDIRECTS": "1"}

SCRIPT = """
import os, sys
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
dist.init_process_group("gloo")
here = {name: os.environ[name] for name in ("GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_MAX_RESTARTS")}
# One write: the two ranks of a torchrun share one pipe, and print() writes each of its parts by itself.
os.write(1, f"rank {dist.get_rank()} of {dist.get_world_size()} {' '.join(here.values())}\\n".encode())
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step, (inputs,) in enumerate(DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8)):
    if step == 4 and dist.get_rank() == 3 and os.environ["PACELINE_ATTEMPT"] == os.environ.get("DIES_IN"):
        sys.exit(3)
    optimizer.zero_grad()
    model(inputs).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""


def run(build: Path, folder: Path, command: list[str], **environment: str) -> tuple[int, str]:
    (folder / "train.py").write_text(textwrap.dedent(SCRIPT))
    return run_job(
        build,
        folder,
        command,
        {**OUTPUT, **environment},
        replicas=2,
        framework={"type": "PyTorch", "launcher": "Passthrough", "processesPerReplica": 2},
        failurePolicy={"maxRestarts": 1, "gracePeriod": "10s"},
    )


def torchrun(folder: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", *flags, str(folder / "train.py")]


def ranks(output: str) -> dict[int, tuple[str, ...]]:
    """What each rank saw: world size, GROUP_RANK, LOCAL_RANK, LOCAL_WORLD_SIZE, restarts that
    torchrun may spend by itself.
    """
    found = re.findall(r"rank (\d+) of (\d+) (\d+) (\d+) (\d+) (\d+)$", output, re.MULTILINE)
    return {int(rank): tuple(rest) for rank, *rest in found}


EVERY_RANK = {rank: ("4", str(rank // 2), str(rank % 2), "2", "0") for rank in range(4)}


def test_the_commands_own_flag_wins(build: Path, tmp_path: Path) -> None:
    code, output = run(build, tmp_path, torchrun(tmp_path, "--nproc_per_node=1"))
    assert code == 0, output
    assert {rank: seen[0] for rank, seen in ranks(output).items()} == {0: "2", 1: "2"}, output


def test_torchrun_is_told_the_gang_and_a_rank_that_fails_restarts_it_not_torchruns_way(
    build: Path, tmp_path: Path
) -> None:
    code, output = run(build, tmp_path, torchrun(tmp_path), DIES_IN="0")
    assert code == 0, output
    assert ranks(output) == EVERY_RANK, output
    assert re.search(r"^ *restarts +1$", output, re.MULTILINE), output
    assert output.count("rank 3 of 4") == 2, output
    steps = re.search(r"^ *steps +(\d+)$", output, re.MULTILINE)
    assert steps and int(steps[1]) >= 8, output
    assert re.search(r"^ *slowest rank +[0-3]$", output, re.MULTILINE), output


@pytest.mark.parametrize("flag", ["--max-restarts=3", "--max_restarts=3"])
def test_restarts_of_its_own_are_refused(build: Path, tmp_path: Path, flag: str) -> None:
    code, output = run(build, tmp_path, torchrun(tmp_path, flag))
    assert code == 2, output
    assert "spec.failurePolicy.maxRestarts: 3" in output, output
