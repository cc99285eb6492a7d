# SPDX-License-Identifier: Apache-2.0
"""Compiled models of programs with several ranks: what is compiled within DDP and FSDP2."""

from __future__ import annotations

import pytest
import torch
from programs import Train

pytestmark = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 4),
    reason="a PyTorch whose models are not compiled",
)

# Three ways of the same step: eager, compiled on both ranks, and compiled on one of them. Then the
# model is left as it was.
PROGRAM = """
from paceline.tune import _compile, _room
from torch._dynamo.utils import counters
_compile.BACKEND, _compile.why_no_compiler = "aot_eager", lambda device: ""
_room.why_not = lambda proved: ""
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1)
blocks = [nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)) for _ in range(3)]
model = wrapped(nn.Sequential(*blocks))
x = torch.randn(4, 8) + rank
def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
def step():
    model.zero_grad()
    model(x).sum().backward()
    return torch.cat([whole(each.grad).flatten() for each in model.parameters()])
eager, names = step(), list(model.state_dict())
change = _compile.Compile()
change.observe()
step()
assert change.why_not() == "", change.why_not()
change.use(True)
for _ in range(3):
    torch.testing.assert_close(step(), eager)
assert counters["stats"]["unique_graphs"] >= 1 and counters["stats"]["calls_captured"] >= 3, counters
change.use(rank == 0)
torch.testing.assert_close(step(), eager)
graphs = counters["stats"]["unique_graphs"]
change.use(True)
torch.testing.assert_close(step(), eager)
assert counters["stats"]["unique_graphs"] == graphs, "a switch compiled something anew"
assert list(model.state_dict()) == names and not change.failed, change.failed
change.drop()
for part in model.modules():
    assert part._compiled_call_impl is None and "forward" not in part.__dict__
torch.testing.assert_close(step(), eager)
print("same", rank)
"""
DDP = """
def wrapped(model):
    return nn.parallel.DistributedDataParallel(model)
"""
FSDP2 = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
def wrapped(model):
    mesh = init_device_mesh("cpu", (2,))
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)
"""


@pytest.mark.parametrize("way", [DDP, FSDP2], ids=["ddp", "fsdp2"])
def test_what_is_inside_is_compiled(train_by_fork: Train, way: str) -> None:
    done = train_by_fork(way + PROGRAM, ranks=2)
    assert done.code == 0, done.output
    assert done.output.count("same") == 2, done.output
