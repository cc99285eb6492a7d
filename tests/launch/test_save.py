# SPDX-License-Identifier: Apache-2.0
"""A job is asked to end while it trains with DistributedDataParallel: its ranks save at one step, and
the next run goes on from there.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from local import run_job, run_of

PROGRAM = """
import pathlib, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import paceline

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
checkpoint = pathlib.Path(sys.argv[1]) / f"checkpoint-{rank}.pt"
first, last = 0, 1 << 30
if checkpoint.exists():
    state = torch.load(checkpoint)
    model.load_state_dict(state["model"])
    first, last = state["step"] + 1, state["step"] + 4
    print(f"rank {rank} resumes at {first}", flush=True)
for step in range(first, last):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    if paceline.save_requested(step):
        dist.barrier()  # as sharded checkpoints do: it hangs unless all ranks come here
        torch.save({"step": step, "model": model.state_dict()}, checkpoint)
        print(f"rank {rank} saved {step}", flush=True)
    if step == 20:
        print(f"rank {rank} trains", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("replicas", "processes"), [(1, 2), (2, 1)], ids=["one pod", "two pods"])
def test_ranks_save_at_one_step_and_resume_from_it(
    build: Path, tmp_path: Path, replicas: int, processes: int
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "train.py"), str(tmp_path)]
    framework = {"type": "PyTorch", "processesPerReplica": processes}
    run = run_of(build, tmp_path, command, {}, replicas=replicas, framework=framework)
    with subprocess.Popen(
        run,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        output = ""
        for line in process.stdout:
            output += line
            if "rank 0 trains" in line:
                process.send_signal(signal.SIGTERM)
    saved = dict(re.findall(r"rank (\d) saved (\d+)", output))
    assert saved.keys() == {"0", "1"}, output
    assert len(set(saved.values())) == 1, output
    step = int(saved["0"])
    assert f"saved at step {step} on all ranks, in " in output, output

    code, output = run_job(build, tmp_path, command, {}, replicas=replicas, framework=framework)
    assert code == 0, output
    assert set(re.findall(r"rank (\d) resumes at (\d+)", output)) == {
        ("0", str(step + 1)),
        ("1", str(step + 1)),
    }, output
