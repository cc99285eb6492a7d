# SPDX-License-Identifier: Apache-2.0
"""Operators of detection models within compiled functions: the library computes, between graphs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import scenes
import torch
from paceline import ops
from paceline.ops import _native

Tensor = torch.Tensor
pytestmark = [
    pytest.mark.skipif(not hasattr(torch, "_disable_dynamo"), reason="PyTorch before 2.1"),
    pytest.mark.skipif(bool(_native.why_unavailable()), reason="no library"),
]


def overlaps(x: Tensor) -> Tensor:
    priors = torch.cat((scenes.grid(8, 8, 8), torch.full((64, 2), 8.0)), 1)
    boxes = torch.cat((priors[:, :2] - 6, priors[:, :2] + 6), 1)[None]
    truths = torch.tensor([[0.0, 0.0, 30.0, 30.0], [20.0, 20.0, 50.0, 50.0]])
    found = ops.simota_assign(
        boxes, x.sqrt().view(1, 64, 3), priors, [0, 2], truths, torch.tensor([0, 1])
    )
    return found.overlaps.neg()


def voxels(x: Tensor) -> Tensor:
    found = ops.voxelize(x.sqrt().view(64, 3), (0.1,) * 3, (0, 0, 0, 1, 1, 1), max_points=5)
    assert found.points is not None
    return found.points.neg()


def targets(x: Tensor) -> Tensor:
    centers = x.mul(16).view(-1, 3)[:, :2]
    found = ops.fcos3d_targets(
        [centers + 3],
        [0, 64],
        centers,
        centers[:, 0],
        torch.cat((centers - 5, centers + 5), 1),
        torch.ones(64, 7),
        torch.arange(64),
        head=ops.FCOS3DHead(strides=[8], regress_ranges=[(-1, 48)]),
    )
    return found.bbox_targets_3d[0].neg()


@pytest.mark.parametrize("function", [overlaps, voxels, targets])
def test_the_library_computes_and_the_graph_breaks_once(
    function: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []
    call = _native.call

    def counted(native: Any, *others: Any) -> int:
        called.append(native)
        return call(native, *others)

    monkeypatch.setattr(_native, "call", counted)
    x = torch.rand(192, generator=torch.Generator().manual_seed(1)) / 2
    wanted = function(x)
    assert wanted.any()
    of_eager = list(called)
    called.clear()
    torch._dynamo.reset()
    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(function, backend=backend)
    for _ in range(2):
        assert torch.equal(compiled(x), wanted)
    assert called == of_eager * 2
    # What is before the call, and what is behind it.
    assert len(graphs) == 2, [graph.code for graph in graphs]


def test_the_compiler_is_not_imported_where_nothing_is_compiled() -> None:
    """Its import takes a second and more."""
    program = """
import sys
sys.path[:0] = PATH
import torch
from paceline import ops
ops.voxelize(torch.rand(9, 3), (0.1,) * 3, (0, 0, 0, 1, 1, 1), max_points=5)
print(*(name for name in sys.modules if name.startswith("torch._dynamo")))
"""
    run = [sys.executable, "-c", program.replace("PATH", repr(sys.path))]
    assert subprocess.run(run, check=True, capture_output=True, text=True).stdout == "\n"
