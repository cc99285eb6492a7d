# SPDX-License-Identifier: Apache-2.0
"""The floating-point operations of a model, counted in one step of a program that knows nothing of
it: as PyTorch's own counter has them, and without a trace in what is trained.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from programs import Train

NEW = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 1)
counts = pytest.mark.skipif(not NEW, reason="PyTorch 1.13 has no hook for a failed forward pass")

CONVOLUTIONS = """
def net():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
                         nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Dropout(0.1), nn.Flatten(),
                         nn.Linear(4 * 16 * 16, 16), nn.Linear(16, 1, bias=False))
shape = (3, 8, 8)
"""
ATTENTION = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(3, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.outside = nn.Linear(32, 1)
    def forward(self, x):
        return self.outside(self.layer(self.inside(x))).mean(1)
net = Net
shape = (10, 3)
"""
TRAIN = """
torch.manual_seed(0)
model = net()
{prepare}
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
data = TensorDataset(torch.randn(160, *shape), torch.randn(160, 1))
for x, y in DataLoader(data, batch_size=8):
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
from paceline._core.trace import trace
for _ in range(1000):  # another thread writes the records
    if trace.lib is None or len(trace.steps()) >= 12:
        break
    time.sleep(0.01)
print("trained", [float(p.double().sum()).hex() for p in model.parameters()], torch.rand(1).item())
"""
TORCHS_COUNT = """
from torch.utils.flop_counter import FlopCounterMode
counter = FlopCounterMode(display=False)
with counter:
    ((model(x) - y) ** 2).mean().backward()
print("counted", counter.get_total_flops())
"""


def program(net: str, prepare: str = "") -> str:
    return net + TRAIN.format(prepare=prepare)


def model_of(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text()).get("model", {})
    return found


def told(output: str, what: str) -> str:
    return next(line for line in output.splitlines() if line.startswith(what))


@counts
@pytest.mark.parametrize(
    ("net", "prepare"),
    [
        (CONVOLUTIONS, ""),
        (CONVOLUTIONS, "model[0].requires_grad_(False)"),
        (CONVOLUTIONS, "model[:6].requires_grad_(False)"),
        (
            ATTENTION,
            "torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]).__enter__()",
        ),
    ],
    ids=["convolutions", "first layer frozen", "head alone", "attention"],
)
def test_it_counts_as_pytorch_does(
    train_by_fork: Train, tmp_path: Path, net: str, prepare: str
) -> None:
    file = tmp_path / "effects.json"
    run = train_by_fork(program(net, prepare) + TORCHS_COUNT, PACELINE_EFFECTS_FILE=str(file))
    assert run.code == 0, run.output
    model = model_of(file)
    assert model["flops"] == pytest.approx(int(told(run.output, "counted").split()[1]), rel=0.005)
    assert model["samples"] == 8
    assert "peak" not in model, "no table has this processor"


@counts
@pytest.mark.parametrize("net", [CONVOLUTIONS, ATTENTION], ids=["convolutions", "attention"])
def test_what_is_trained_is_the_same(train_by_fork: Train, tmp_path: Path, net: str) -> None:
    file = tmp_path / "effects.json"
    counted = train_by_fork(program(net), PACELINE_EFFECTS_FILE=str(file))
    plain = train_by_fork(program(net))
    assert model_of(file)["flops"] > 0
    assert told(counted.output, "trained") == told(plain.output, "trained")


LEFT = {
    "compiled": ("model.compile(backend='eager')", "the model is compiled"),
    "subclass": (
        "class Mine(nn.Parameter): pass\nmodel[6].weight = Mine(model[6].weight.data)",
        "a parameter is a Mine",
    ),
    "script": ("model[0] = torch.jit.script(model[0])", "TorchScript"),
    "checkpointed": (
        "from torch.utils.checkpoint import checkpoint\n"
        "class Again(nn.Module):\n"
        "    def __init__(self, inner):\n"
        "        super().__init__()\n"
        "        self.inner = inner\n"
        "    def forward(self, x):\n"
        "        return checkpoint(self.inner, x.requires_grad_(), use_reentrant=True)\n"
        "model = Again(model)",
        "reentrant checkpointing",
    ),
}


@counts
@pytest.mark.parametrize("case", LEFT, ids=list(LEFT))
def test_what_it_could_change_is_left_with_one_line(
    train_by_fork: Train, tmp_path: Path, case: str
) -> None:
    prepare, why = LEFT[case]
    file = tmp_path / "effects.json"
    run = train_by_fork(program(CONVOLUTIONS, prepare), PACELINE_EFFECTS_FILE=str(file))
    assert run.code == 0, run.output
    assert model_of(file) == {}
    (line,) = [line for line in run.output.splitlines() if "FLOPs are not counted" in line]
    assert why in line


FAILS_ONCE = """
class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.calls = nn.Linear(4, 1), 0
    def forward(self, x):
        self.calls += 1
        if self.calls == 12:
            raise ValueError("odd batch")
        return self.inner(x)
model = Odd()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in DataLoader(TensorDataset(torch.randn(160, 4), torch.randn(160, 1)), batch_size=8):
    optimizer.zero_grad()
    try:
        ((model(x) - y) ** 2).mean().backward()
    except ValueError:
        continue
    optimizer.step()
from torch.utils._python_dispatch import _get_current_dispatch_mode
print("mode", _get_current_dispatch_mode())
"""


@counts
def test_a_forward_pass_that_fails_leaves_nothing_behind(
    train_by_fork: Train, tmp_path: Path
) -> None:
    file = tmp_path / "effects.json"
    run = train_by_fork(FAILS_ONCE, PACELINE_EFFECTS_FILE=str(file))
    assert run.code == 0, run.output
    assert "mode None" in run.output
    assert model_of(file)["flops"] == 2 * 2 * 8 * 4, "the batch after it was counted"


PEAKS = {
    "NVIDIA H100 80GB HBM3": (989.4, 67.0),
    "NVIDIA H100 PCIe": (756.0, 51.0),
    "NVIDIA A100-SXM4-80GB": (312.0, 19.5),
    "Tesla V100-PCIE-16GB": (112.0, 14.0),
    "NVIDIA GH200 480GB": (989.4, 67.0),
    "NVIDIA L4": (121.0, 30.3),
    "NVIDIA L40S": (362.0, 91.6),
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": (0.0, 0.0),
    "NVIDIA A10G": (0.0, 0.0),
    "NVIDIA GeForce RTX 4090": (0.0, 0.0),
    "": (0.0, 0.0),
}


def test_peaks_of_known_gpus(train_by_fork: Train) -> None:
    run = train_by_fork(
        "from paceline._tracing._peaks import peak\n"
        f"for name in {list(PEAKS)!r}:\n"
        "    print('peak', peak(name, 'half') / 1e12, peak(name, 'single') / 1e12)"
    )
    told = [line.split()[1:] for line in run.output.splitlines() if line.startswith("peak")]
    assert [tuple(map(float, words)) for words in told] == list(PEAKS.values())
