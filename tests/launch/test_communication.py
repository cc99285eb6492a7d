# SPDX-License-Identifier: Apache-2.0
"""A rank that is killed, or stopped, in the middle of a step: every survivor is told which, the
gang restarts in place, and ranks find each other again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from local import run_job

# Knows nothing of Paceline, but for the number of the attempt.
SCRIPT = """
import os, signal, time
import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
attempt = int(os.environ["PACELINE_ATTEMPT"])
end = {0: signal.SIGKILL, 1: signal.SIGSTOP}.get(attempt)
if end is not None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher's word must not come before the survivors'
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)]), bucket_cap_mb=0.03)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
first = model.module[0].weight
for step in range(6):
    if step == 3 and rank == 1 and end is not None:
        first.register_hook(lambda _: os.kill(os.getpid(), end))
    optimizer.zero_grad()
    began = time.monotonic()
    try:
        model(torch.randn(4, 64)).pow(2).sum().backward()
    except RuntimeError as error:
        print(f"attempt {attempt} step {step}: rank {rank} after {time.monotonic() - began:.1f} s: "
              f"{type(error).__name__}: {error}", flush=True)
        raise SystemExit(1)
    optimizer.step()
print(f"attempt {attempt} step {step}: rank {rank} ends", flush=True)
dist.destroy_process_group()
"""


def test_survivors_name_the_rank_and_the_gang_goes_on_in_place(build: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    code, output = run_job(
        build,
        tmp_path,
        [sys.executable, str(tmp_path / "train.py")],
        {},
        acceleration={"mode": "Manual", "communication": "Auto"},
        framework={"type": "PyTorch", "processesPerReplica": 3},
        failurePolicy={"maxRestarts": 2, "gracePeriod": "10s"},
    )
    assert code == 0, output
    told = {
        line[line.index("attempt ") :]
        for line in output.splitlines()
        if "attempt " in line and " step " in line
    }
    for attempt in (0, 1):
        survivors = [line for line in told if line.startswith(f"attempt {attempt} step 3: rank ")]
        assert sorted(line.split()[5] for line in survivors) == ["0", "2"], output
        assert all("CommError: paceline.comm: rank 1 " in line for line in survivors), output
    # The heartbeat timeout of 10 s, from the last heartbeat of the stopped rank on. A busy machine
    # adds to it, or takes from it if a survivor begins its step late.
    stopped = [line for line in told if line.startswith("attempt 1 step 3")]
    assert all(4 < float(line.split()[7]) < 40 for line in stopped), output
    assert {f"attempt 2 step 5: rank {rank} ends" for rank in range(3)} <= told, output
