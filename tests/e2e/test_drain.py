# SPDX-License-Identifier: Apache-2.0
"""`kubectl cordon` and then `drain` of a node where a job trains: its ranks save at one step and
train on, and save again and go on from there elsewhere. That costs no restart.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import JobHandle, job, role, trainer
from kube import Kube, Object

Submit = Callable[[Object], JobHandle]

PROGRAM = """
import pathlib, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import paceline

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
checkpoint = pathlib.Path("/checkpoints") / f"{rank}.pt"
first = torch.load(checkpoint)["step"] + 1 if checkpoint.exists() else 0
print(f"rank {rank} begins at step {first}", flush=True)
for step in range(first, 1 << 30):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    if paceline.save_requested(step):
        dist.barrier()  # it hangs unless all ranks save after this step
        torch.save({"step": step}, checkpoint)
    go = torch.tensor(float(pathlib.Path("/checkpoints/go").exists()))
    dist.broadcast(go, 0)
    if go:
        break
    time.sleep(0.02)
dist.destroy_process_group()
"""


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    tmp_path.chmod(0o777)
    return tmp_path


def body(name: str, folder: Path) -> Object:
    container = trainer("")
    container |= {
        "image": "paceline/pytorch:dev",
        "command": ["python3", "-c", PROGRAM.replace("$", "$$")],
        "volumeMounts": [{"name": "checkpoints", "mountPath": "/checkpoints"}],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {}},
    }
    volume = {"name": "checkpoints", "hostPath": {"path": str(folder)}}
    made = job(name, framework={"type": "PyTorch", "processesPerReplica": 1})
    made["spec"]["failurePolicy"] = {"maxRestarts": 0, "gracePeriod": "5s"}
    made["spec"]["roles"] = [
        role("worker", 2, container, volumes=[volume], terminationGracePeriodSeconds=30)
    ]
    return made


def test_a_drained_node_costs_no_restart_and_no_step(
    kube: Kube, submit: Submit, namespace: str, pytorch_image: None, checkpoints: Path
) -> None:
    handle = submit(body("drained", checkpoints))
    handle.wait_phase("Running")

    def begins() -> dict[str, int]:
        """By rank: the step that it began at, in the present pods."""
        found = re.findall(
            r"rank (\d) begins at step (\d+)",
            "\n".join(kube.logs(namespace, name) for name in handle.pod_names()),
        )
        return {rank: int(step) for rank, step in found}

    kube.wait("both ranks train", lambda: begins() == {"0": 0, "1": 0}, namespace)
    kube.wait("steps are told", lambda: handle.status.get("training", {}).get("step"), namespace)
    node = handle.pods()[1]["spec"]["nodeName"]
    of_the_job = "--pod-selector=paceline.dev/job=drained"
    try:
        kube.kubectl("cordon", node)
        kube.wait("a save", lambda: handle.status.get("checkpoint"), namespace)
        warned_at = handle.status["checkpoint"]["lastStep"]
        assert begins() == {"0": 0, "1": 0}, "the ranks train on"
        kube.kubectl("drain", node, of_the_job, "--force", "--delete-emptydir-data")
        after = kube.wait("both ranks go on", lambda: resumed(begins()), namespace)
        assert not [pod for pod in handle.pods() if pod["spec"].get("nodeName") == node]
    finally:
        kube.kubectl("uncordon", node)
    saved = handle.wait_phase("Running")["checkpoint"]["lastStep"]
    assert saved > warned_at
    assert after == saved + 1, "no step was lost, and none was done twice"
    (checkpoints / "go").touch()
    status = handle.wait_phase("Succeeded")
    assert (status["restarts"], status["disruptions"]) == (0, 1), status


def resumed(begins: dict[str, int]) -> int:
    """The step that both ranks have begun at again; 0: not yet."""
    steps = set(begins.values())
    return steps.pop() if len(begins) == 2 and len(steps) == 1 else 0
