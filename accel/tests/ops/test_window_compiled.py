# SPDX-License-Identifier: Apache-2.0
"""Window attention under torch.compile: the kernels stay, as an operator of the graph. The driver is
the fake one of test_ops_device.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fake_device import BEGIN

pytestmark = pytest.mark.skipif(
    not hasattr(getattr(torch, "compiler", None), "is_exporting"), reason="PyTorch before 2.7"
)

KERNELS = (
    """
import os
import torch
from torch import nn
# CUDA looks for devices in the first backward pass: before the fake driver is there.
torch.cuda.is_available()
torch.zeros(1, requires_grad=True).sum().backward()
"""
    + BEGIN
    + """
FORWARD = ["paceline_attention_forward"]
BACKWARD = [
    "paceline_attention_backward", "paceline_attention_bias", "paceline_attention_table",
]

def compiled(function, **more):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager", **more)

def grads(function, arguments):
    out = function(*arguments)
    weights = torch.linspace(-1, 1, out.numel()).view_as(out).to(out.dtype)
    return [out.detach(), *torch.autograd.grad(out, arguments[:2], weights)]

def the_same(found, wanted):
    return all(torch.equal(one, other) for one, other in zip(found, wanted))
"""
)


@pytest.fixture
def alone(runtime: Path, fake_device: dict[str, str]) -> Callable[[str], None]:
    """Runs a program in a process of its own: the compiler may start threads, which forks lack."""

    def run(program: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(runtime / "python"), **fake_device}
        command = [sys.executable, "-c", program]
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr
        assert "reached the end" in result.stdout, result.stdout + result.stderr

    return run


@pytest.mark.parametrize("dynamic", [None, True])
def test_results_and_gradients_are_those_of_eager(
    alone: Callable[[str], None], dynamic: bool | None
) -> None:
    alone(f"""{KERNELS}
on_gpu(True)
ours = compiled(ops.window_attention, dynamic={dynamic})
def apart(qkv, *others):
    return ops.window_attention(qkv.unbind(2), *others, scale=0.3)
ours_apart = compiled(apart, dynamic={dynamic})
for windows, masks in ((4, 2), (6, 2), (2, 0)):
    arguments = attention(windows=windows, masks=masks)
    for function, graph in ((ops.window_attention, ours), (apart, ours_apart)):
        wanted = grads(function, arguments)
        assert launches() == FORWARD + BACKWARD
        assert the_same(grads(graph, arguments), wanted)
        assert launches() == FORWARD + BACKWARD
print("reached the end")
""")


def test_a_module_under_autocast(alone: Callable[[str], None]) -> None:
    alone(f"""{KERNELS}
on_gpu(True)
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(97, 2))
        self.register_buffer("index", attention()[2])
        self.qkv, self.proj = nn.Linear(64, 192), nn.Linear(64, 64)
    def forward(self, x):
        qkv = self.qkv(x).view(len(x), 49, 3, 2, 32)
        return self.proj(ops.window_attention(qkv, self.table, self.index))

module, x = Attention(), torch.randn(4, 49, 64)
def trained(model):
    with torch.autocast("cpu", torch.bfloat16):
        out = model(x)
    out.float().square().sum().backward()
    found = [out.detach(), *(each.grad for each in module.parameters())]
    module.zero_grad(set_to_none=True)
    return found

wanted = trained(module)
assert launches() == FORWARD + BACKWARD
assert the_same(trained(compiled(module)), wanted)
assert launches() == FORWARD + BACKWARD
with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
    compiled(module)(x)
assert launches() == FORWARD
print("reached the end")
""")


def test_the_operators_keep_the_rules_of_pytorch(alone: Callable[[str], None]) -> None:
    alone(f"""{KERNELS}
on_gpu(True)
qkv, table, index, mask = attention()
apart = [each.detach().requires_grad_() for each in qkv.unbind(2)]
out_grad = torch.randn(4, 49, 64).half()
for parts, masks in (([qkv, None, None], mask), (apart, None)):
    inputs = (*parts, table, index, masks, 0.2)
    torch.library.opcheck(torch.ops.paceline.window_attention.default, inputs)
    fixed = tuple(each.detach() if torch.is_tensor(each) else each for each in inputs)
    backward = torch.ops.paceline.window_attention_backward.default
    torch.library.opcheck(backward, (*fixed, out_grad))
print("reached the end")
""")


def test_a_second_backward_is_refused(alone: Callable[[str], None]) -> None:
    alone(f"""{KERNELS}
on_gpu(True)
def second(function, *more):
    qkv, table, index, mask = attention()
    out = function(qkv, *more, table, index, mask, *(() if not more else (0.2,)))
    (grad,) = torch.autograd.grad(out.float().sum(), qkv, create_graph=True)
    try:
        torch.autograd.grad(grad.float().square().sum(), table)
    except RuntimeError as error:
        return str(error)

def by_operator(*arguments):
    return torch.ops.paceline.window_attention(*arguments)

assert "window_attention_backward" in second(by_operator, None, None)
try:
    told = second(compiled(ops.window_attention))
except RuntimeError as error:
    told = str(error)
assert "double backward" in told, told
print("reached the end")
""")


def test_what_is_left_to_pytorch(alone: Callable[[str], None]) -> None:
    alone(f"""{KERNELS}
def wanted(qkv, table, index, mask):
    return _window.by_torch(qkv, table, index, mask, 32**-0.5)

arguments = attention(windows=2, tokens=9, dtype=torch.float32)
found = compiled(ops.window_attention)(*arguments)  # on the CPU
assert torch.allclose(found, wanted(*arguments), atol=1e-6)

on_gpu(True)
_device.TYPES = {{torch.float32: 0}}  # PyTorch has few operations for halves on the CPU
qkv, table, index, mask = (each.detach() for each in arguments)
def call(qkv):
    return ops.window_attention(qkv, table, index, mask)
found = compiled(lambda qkv: torch.func.vmap(call)(qkv[None])[0])(qkv)
assert torch.allclose(found, wanted(qkv, table, index, mask), atol=1e-6)
compiled(lambda qkv: torch.func.jvp(call, (qkv,), (qkv,)))(qkv)
class Module(nn.Module):
    def forward(self, qkv):
        return call(qkv)
for strict in (True, False):
    graph = torch.export.export(Module(), (qkv,), strict=strict).graph
    assert not any("paceline" in str(node.target) for node in graph.nodes)
long = attention(windows=2, tokens=65, heads=1, masks=0, dtype=torch.float32)
compiled(ops.window_attention)(*long)
_device.why_unavailable = lambda index: "there are none"
compiled(ops.window_attention)(*arguments)
assert launches() == []
print("reached the end")
""")
