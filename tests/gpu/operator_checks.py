# SPDX-License-Identifier: Apache-2.0
"""Checks of operators that run on a GPU, by ops_check.py, and on the fake device of
accel/tests/ops/test_gpu_checks.py: a mistake in them costs no time on a GPU.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import checks
import torch
from paceline import ops
from paceline._inject import operators, swin

sys.path.append(str(Path(__file__).resolve().parents[2] / "accel/tests/ops"))
sys.path.append(str(Path(__file__).resolve().parents[2] / "accel/tests/inject"))
import originals  # type: ignore[import-not-found]
import swin_v2_fakes  # type: ignore[import-not-found]

Tensor = torch.Tensor


def _same(found: list[Tensor], wanted: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def _with_grads(function: Any, inputs: list[Tensor]) -> list[Tensor]:
    out = function(*inputs)
    weights = torch.linspace(-1, 1, out.numel(), device=out.device).view_as(out).to(out.dtype)
    wanted = [each for each in inputs if each.requires_grad]
    return [out.detach(), *torch.autograd.grad(out, wanted, weights)]


class OperatorChecks(NamedTuple):
    """The checks, and where they run."""

    device: torch.device
    backend: str  # of torch.compile
    replayed: Callable[[Callable[[], list[Tensor]]], list[Tensor]]  # as a captured graph has them
    milliseconds: Callable[[Callable[[], Any]], float]  # of one call
    windows: int
    side: int  # of pictures, in pixels

    def _compiled(self, function: Any) -> Any:
        return torch.compile(function, backend=self.backend)

    def _attention_inputs(self) -> list[Tensor]:
        torch.manual_seed(1)
        tokens, heads, device = 49, 3, self.device
        places = torch.arange(tokens, device=device)
        qkv = torch.randn(self.windows, tokens, 3, heads, 32, device=device)
        return [
            qkv.half().requires_grad_(),
            torch.randn(2 * tokens - 1, heads, device=device).requires_grad_(),
            places[:, None] - places + tokens - 1,
            torch.where(torch.rand(2, tokens, tokens, device=device) < 0.3, -100.0, 0.0),
        ]

    def the_compiled_window_operator_is_the_eager_one(self) -> None:
        inputs = self._attention_inputs()
        compiled = torch.compile(ops.window_attention, fullgraph=True, backend=self.backend)
        assert _same(_with_grads(compiled, inputs), _with_grads(ops.window_attention, inputs))

    def entries_before_the_table_count_from_its_end(self) -> None:
        qkv, table, index, mask = self._attention_inputs()
        wanted = _with_grads(ops.window_attention, [qkv, table, index, mask])
        negative = torch.where(index % 2 == 0, index - len(table), index)
        assert _same(_with_grads(ops.window_attention, [qkv, table, negative, mask]), wanted)
        lost = ops.window_attention(qkv, table, index.clone().fill_(len(table)), mask)
        assert lost.isnan().all()

    def attention_of_swin_v2_is_as_exact_as_the_librarys(self) -> None:
        """A class of timm's shape: cosine attention, under autocast to bfloat16."""
        name = "timm.models.swin_transformer_v2"
        library = ModuleType(name)
        library.WindowAttention = swin_v2_fakes.WindowAttention  # type: ignore[attr-defined]
        before = sys.modules.get(name)
        torch.manual_seed(2)
        module = swin_v2_fakes.WindowAttention(dim=96, heads=3, side=7).to(self.device)
        x = torch.randn(self.windows, 49, 96, device=self.device)
        mask = torch.where(torch.rand(2, 49, 49, device=self.device) < 0.3, -100.0, 0.0)

        def trained(autocast: bool = True) -> list[Tensor]:
            with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=autocast):
                out = module(x, mask)
            weights = torch.linspace(-1, 1, out.numel(), device=out.device).view_as(out)
            (out.float() * weights).sum().backward()
            found = [out.detach(), *(each.grad for each in module.parameters())]
            module.zero_grad(set_to_none=True)
            return found

        exact, theirs = trained(autocast=False), trained()
        os.environ["PACELINE_OPERATORS"] = "Auto"
        sys.modules[name] = library
        try:
            swin.install()
            ours = trained()
            told = operators.status().switch
        finally:
            swin.uninstall()
            if before is None:
                del sys.modules[name]
            else:
                sys.modules[name] = before
        assert told.startswith(f"on for {name}"), told
        off, of_theirs = (
            [
                float((one - other).abs().max() / other.abs().max().clamp(min=1e-6))
                for one, other in zip(found, exact, strict=True)
            ]
            for found in (ours, theirs)
        )
        row = {"at_most": round(max(off), 4), "the_librarys_at_most": round(max(of_theirs), 4)}
        checks.emit({"swin_v2": "autocast differs from float32", **row})
        assert max(off) <= 2 * max(of_theirs), (off, of_theirs)

    def _points(self, stride: int) -> Tensor:
        side = torch.arange(self.side // stride, device=self.device) * stride + stride / 2
        ys, xs = torch.meshgrid(side, side, indexing="ij")
        return torch.stack((xs.flatten(), ys.flatten()), 1)

    def _boxes(self, count: int) -> Tensor:
        centers = torch.rand(count, 2, device=self.device) * self.side
        halves = (torch.rand(count, 2, device=self.device) * 0.3 + 0.02) * self.side / 2
        return torch.cat((centers - halves, centers + halves), 1)

    def _simota_scene(self, images: int, truths: int) -> list[Any]:
        torch.manual_seed(5)
        places = [
            torch.cat((points, torch.full_like(points, stride)), 1)
            for stride in (8, 16, 32)
            for points in [self._points(stride)]
        ]
        priors = torch.cat(places)
        shape = images, len(priors), 2
        low, high = (torch.rand(shape, device=self.device) * 3 + 1 for _ in range(2))
        boxes = torch.cat(
            (priors[:, :2] - priors[:, 2:] * low, priors[:, :2] + priors[:, 2:] * high), 2
        )
        scores = torch.rand(*shape[:2], 80, device=self.device) ** 3
        labels = torch.randint(0, 80, (images * truths,), device=self.device)
        offsets = [truths * i for i in range(images + 1)]
        return [boxes, scores, priors, offsets, self._boxes(images * truths), labels]

    def simota_is_its_fix_compiled(self) -> None:
        """The same assignment but for rounding, and the times of both."""
        boxes, scores, priors, _, truths, labels = scene = self._simota_scene(1, 8)
        fix = self._compiled(originals.simota_image)

        def theirs() -> Any:
            gathered = originals.gathered_class_costs
            return fix(boxes[0], scores[0], priors, truths, labels, costs_of=gathered)

        def ours() -> Any:
            return ops.simota_assign(*scene)

        wanted, found = theirs().winners, ours().gt_index[0]
        matched, differ = int(wanted.ge(0).sum()), int(wanted.ne(found).sum())
        times = {"ours_ms": self.milliseconds(ours), "compiled_ms": self.milliseconds(theirs)}
        rounded = {name: round(each, 4) for name, each in times.items()}
        checks.emit(
            {"simota": "beside its fix, compiled", "differ": differ, "of": matched, **rounded}
        )
        assert matched >= 8 and differ <= matched // 50

    def simota_in_a_compiled_function_is_the_same(self) -> None:
        boxes, scores, *others = self._simota_scene(2, 8)

        def loss(logits: Tensor) -> Tensor:
            found = ops.simota_assign(boxes, logits.sigmoid(), *others)
            return found.overlaps * found.gt_index.ge(0)

        assert torch.equal(self._compiled(loss)(scores), loss(scores))

    def results_in_a_captured_graph_are_the_same(self) -> None:
        scene = self._simota_scene(2, 8)
        points = [self._points(stride) for stride in (8, 16)]
        boxes, device = self._boxes(6), self.device
        rows = [
            (boxes[:, :2] + boxes[:, 2:]) / 2,
            torch.rand(6, device=device),
            boxes,
            torch.ones(6, 9, device=device),
            torch.arange(6, device=device),
        ]
        head = ops.FCOS3DHead(strides=[8, 16], regress_ranges=[(-1, 48), (48, 1e8)])

        def both() -> list[Tensor]:
            targets = ops.fcos3d_targets(points, [0, 2, 6], *rows, head=head)
            return [*(level for field in targets for level in field), *ops.simota_assign(*scene)]

        wanted = both()
        assert wanted[-3].ge(0).any() and wanted[0].ne(head.background_label).any()
        assert _same(self.replayed(both), wanted)

    def all(self) -> list[checks.Check]:
        return [
            self.the_compiled_window_operator_is_the_eager_one,
            self.entries_before_the_table_count_from_its_end,
            self.attention_of_swin_v2_is_as_exact_as_the_librarys,
            self.simota_is_its_fix_compiled,
            self.simota_in_a_compiled_function_is_the_same,
            self.results_in_a_captured_graph_are_the_same,
        ]
