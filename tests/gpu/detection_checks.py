# SPDX-License-Identifier: Apache-2.0
"""Checks of detection operators that PyTorch computes on a GPU, by ops_check.py, and on the CPU by
accel/tests/ops/test_gpu_checks.py: a mistake in them costs no time on a GPU.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import checks
import torch
from paceline import ops
from paceline._inject import detection, operators, rtmdet_forms, yolox_forms
from paceline._inject.detection_forms import Form

sys.path.append(str(Path(__file__).resolve().parents[2] / "accel/tests/ops"))
sys.path.append(str(Path(__file__).resolve().parents[2] / "accel/tests/inject"))
import originals  # type: ignore[import-not-found]
import rtmdet_fake  # type: ignore[import-not-found]
import yolox_exact_fakes  # type: ignore[import-not-found]

Tensor = torch.Tensor
SIZE, SPAN = (0.16, 0.16, 4.0), (0.0, -39.68, -3.0, 69.12, 39.68, 1.0)
# Of SECOND, whose grid is so large that the operator is mmcv's on a CPU, too.
FINE_SIZE, FINE_SPAN = (0.05, 0.05, 0.1), (0.0, -40.0, -3.0, 70.4, 40.0, 1.0)


@contextlib.contextmanager
def _patched(form: Form, fake: ModuleType) -> Iterator[None]:
    """Patches the stand-in's class, whose code is made the known one."""
    kind, library = getattr(fake, form.owner), ModuleType(form.module)
    setattr(library, form.owner, kind)
    digest = detection._digest(form, kind, vars(fake))
    known, before = detection.FORMS, sys.modules.get(form.module)
    os.environ["PACELINE_OPERATORS"] = "Auto"
    sys.modules[form.module] = library
    detection.FORMS = (dataclasses.replace(form, digests=(digest,)),)
    try:
        detection.install()
        yield
    finally:
        detection.uninstall()
        detection.FORMS = known
        if before is None:
            del sys.modules[form.module]
        else:
            sys.modules[form.module] = before


class DetectionChecks(NamedTuple):
    """The checks, and where they run."""

    device: torch.device
    milliseconds: Callable[[Callable[[], Any]], float]  # of one call
    points: int
    side: int  # of pictures, in pixels

    def _cloud(self) -> Tensor:
        torch.manual_seed(6)
        points = torch.rand(self.points, 4) * torch.tensor([80.0, 90.0, 5.0, 1.0])
        points -= torch.tensor([5.0, 45.0, 3.5, 0.0])
        points[::9] = (points[::9] / 0.16).round() * 0.16  # on the sides of voxels
        points[::1000, 1] = float("nan")
        return points

    def voxels_are_those_of_the_cpu(self) -> None:
        """To the bit, also in another run."""
        points, offsets = self._cloud(), [0, self.points // 3, self.points]
        settings: tuple[dict[str, Any], ...] = (
            {"max_points": 32, "max_voxels": 16_000},
            {"max_points": 2},
            {},
        )
        for most in settings:
            found, again, wanted = (
                ops.voxelize(cloud, SIZE, SPAN, offsets=offsets, **most)
                for cloud in (points.to(self.device), points.to(self.device), points)
            )
            assert wanted.voxel_of_point.ge(0).any() and wanted.voxel_of_point.lt(0).any()
            for one, other, theirs in zip(found, again, wanted, strict=True):
                if one is None or other is None or theirs is None:
                    assert one is None and other is None and theirs is None
                    continue
                assert torch.equal(one, other) and torch.equal(one.cpu(), theirs)

    def times_of_voxelize(self) -> None:
        points = self._cloud().to(self.device)
        low, size = points.new_tensor(SPAN[:3]), points.new_tensor(SIZE)
        grid = torch.round((points.new_tensor(SPAN[3:]) - low) / size)
        setting = {"size": size, "low": low, "grid": grid}
        most: dict[str, Any] = {"max_points": 32, "max_voxels": 16_000}
        contenders: dict[str, Callable[[], Any]] = {
            "original": lambda: originals.voxels_unique(points, **setting, **most),
            "fix": lambda: originals.voxels_by_key(points, **setting, **most),
            "ours": lambda: ops.voxelize(points, SIZE, SPAN, **most),
        }
        found = {f"{name}_ms": self.milliseconds(call) for name, call in contenders.items()}
        checks.emit(
            {"operator": "voxelize", **{name: round(each, 4) for name, each in found.items()}}
        )

    def mmcv_voxelizes_the_same(self) -> None:
        """To the bit, with NaN; and what a call takes on either way."""
        try:
            layer_of = importlib.import_module("mmcv.ops.voxelize").Voxelization
        except ImportError as error:
            checks.emit({"voxelization": "beside mmcv", "skipped": str(error)})
            return
        points = self._cloud().to(self.device)
        for size, span, most in ((SIZE, SPAN, 32), (FINE_SIZE, FINE_SPAN, 5)):
            layer = layer_of(list(size), list(span), most, (16_000, 40_000))
            for count in (2_000, 20_000, self.points):
                drawn = torch.randperm(self.points)[:count].to(self.device)
                told = self._voxelizes_as(layer, points[drawn])
                # On a CPU, pillars are mmcv's.
                if size is FINE_SIZE or self.device.type == "cuda":
                    assert told.startswith("on for mmcv.ops.voxelize.Voxelization"), told

    def _voxelizes_as(self, layer: Any, cloud: Tensor) -> str:
        """What is told of the call that may be the operator's."""
        wanted, theirs_ms = layer(cloud), self.milliseconds(lambda: layer(cloud))
        os.environ["PACELINE_OPERATORS"] = "Auto"
        try:
            detection.install()
            found, ours_ms = layer(cloud), self.milliseconds(lambda: layer(cloud))
            told = operators.status().switch
        finally:
            detection.uninstall()
        for one, other in zip(found, wanted, strict=True):
            assert torch.equal(one.nan_to_num(), other.nan_to_num())
            assert (one.dtype, one.stride()) == (other.dtype, other.stride())
        row = {"points": len(cloud), "voxel": layer.voxel_size, "voxels": len(found[0])}
        times = {"ours_ms": round(ours_ms, 4), "theirs_ms": round(theirs_ms, 4)}
        checks.emit({"voxelization": "beside mmcv", **row, **times})
        return told

    def _of_yolox(self, dtype: torch.dtype) -> dict[str, Any]:
        given = yolox_exact_fakes.later_scene(4, 20, 80, dtype, side=self.side)
        return {
            name: each.to(self.device) if isinstance(each, Tensor) else each
            for name, each in given.items()
        }

    @contextlib.contextmanager
    def _autocast(self, half: bool) -> Iterator[None]:
        dtype = torch.float16 if self.device.type == "cuda" else torch.bfloat16
        with torch.autocast(self.device.type, dtype=dtype, enabled=half):
            yield

    def yolox_matches_as_its_repository_does(self) -> None:
        """In its head after 0.3.0, in float32 and under autocast to float16."""
        head = yolox_exact_fakes.YOLOXHead(80)
        for dtype in (torch.float32, torch.float16):
            given = self._of_yolox(dtype)

            def assign(given: dict[str, Any] = given, half: bool = dtype is torch.float16) -> Any:
                with self._autocast(half):
                    return head.get_assignments(**given)

            def rows_of(found: Any) -> Tensor:
                rows = torch.full(found[1].shape, -1, device=self.device)
                return rows.masked_scatter(found[1], found[3])

            form = yolox_forms.FORMS[1]
            self._beside("yolox", form, yolox_exact_fakes, (dtype, assign, rows_of))

    def rtmdet_matches_as_mmdetection_does(self) -> None:
        """In float32 and under autocast to float16."""
        assigner = rtmdet_fake.DynamicSoftLabelAssigner()
        for dtype in (torch.float32, torch.float16):
            scene = rtmdet_fake.scene(5, 20, 80, dtype, self.side)
            for each in scene:
                vars(each).update({k: v.to(self.device) for k, v in vars(each).items()})

            def assign(scene: Any = scene, half: bool = dtype is torch.float16) -> Any:
                with self._autocast(half):
                    return assigner.assign(*scene)

            def rows_of(found: Any) -> Tensor:
                rows: Tensor = found.gt_inds - 1
                return rows

            form = rtmdet_forms.FORMS[0]
            self._beside("rtmdet", form, rtmdet_fake, (dtype, assign, rows_of))

    def _beside(self, name: str, form: Form, fake: ModuleType, of: Any) -> None:
        """Compares a class and its stand-in, and measures both. `of`: a type, a function that
        assigns, and one that returns the ground truth of each prior, or -1.
        """
        dtype, assign, rows_of = of
        wanted, theirs_ms = assign(), self.milliseconds(assign)
        with _patched(form, fake):
            found, ours_ms = assign(), self.milliseconds(assign)
            told = operators.status().switch
        assert told.startswith(f"on for {form.module}"), told
        differ = int(rows_of(found).ne(rows_of(wanted)).sum())
        count = int(rows_of(wanted).ge(0).sum())
        row = {"differ": differ, "of": count, "dtype": str(dtype)}
        times = {"ours_ms": round(ours_ms, 4), "theirs_ms": round(theirs_ms, 4)}
        checks.emit({name: "beside the original", **row, **times})
        # The order of a sum may differ by the number of its rows.
        assert count >= 20 and differ <= count // 100

    def all(self) -> list[checks.Check]:
        return [
            self.voxels_are_those_of_the_cpu,
            self.mmcv_voxelizes_the_same,
            self.yolox_matches_as_its_repository_does,
            self.rtmdet_matches_as_mmdetection_does,
            self.times_of_voxelize,
        ]
