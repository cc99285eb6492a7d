# SPDX-License-Identifier: Apache-2.0
"""The published classes of mmcv and mmdetection3d voxelise with the operator as they do alone.
Their compiled kernels are not installed, so those of accel/tests/inject/voxel_fake.py stand in.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import openmmlab
import pytest
import swin_stand_in
import torch
from openmmlab import library
from paceline._core import explain, reports
from paceline._inject import detection, voxel_forms

sys.path.append(str(Path(__file__).resolve().parents[2] / "accel/tests/inject"))
import voxel_fake  # type: ignore[import-not-found]

Tensor = torch.Tensor
OF_MMCV = "mmcv.ops.voxelize"
OF_MMDET3D = "mmdet3d.models.data_preprocessors.voxelize"
SETTINGS: dict[str, Any] = {
    "voxel_size": [0.5, 1.0, 2.0],
    "point_cloud_range": [-2.0, -2.0, -1.0, 2.0, 2.0, 3.0],
    "max_num_points": 2,
    "max_voxels": (20, 30),
}


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voxel_forms, "CELLS_A_POINT", 0)
    for name in (OF_MMCV, OF_MMDET3D):
        extension = library(name).ext_module
        for function in ("hard_voxelize_forward", "dynamic_voxelize_forward"):
            replacement = getattr(voxel_fake.ext_module, function)
            monkeypatch.setattr(extension, function, replacement, raising=False)


def clouds() -> list[Tensor]:
    draw = torch.Generator().manual_seed(7)
    found = [torch.rand(count, 4, generator=draw) * 6 - 3 for count in (90, 7, 300)]
    for each in found:
        each[::3] = (each[::3] * 2).round() / 2  # on the sides of voxels
    return found


def computed(kind: str) -> int:
    seen = reports.OPERATORS.status().seen
    return sum(each["computed"] for each in seen if each["name"].endswith(f".{kind}"))


def assert_same(one: Tensor, other: Tensor) -> None:
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("module", "kind"), [(OF_MMCV, "Voxelization"), (OF_MMDET3D, "VoxelizationByGridShape")]
)
@pytest.mark.parametrize("training", [True, False])
def test_the_layer(module: str, kind: str, training: bool) -> None:
    layer = getattr(library(module), kind)(**SETTINGS).train(training)
    theirs = [layer(each) for each in clouds()]
    with swin_stand_in.job(detection.install):
        ours = [layer(each) for each in clouds()]
        assert computed(kind) == 3, explain.explain()
    for found, wanted in zip(ours, theirs, strict=True):
        for one, other in zip(found, wanted, strict=True):
            assert_same(one, other)
            assert one.stride() == other.stride()
    assert len(ours[2][0]) == (20 if training else 30), "the limit is reached"


@pytest.mark.parametrize("kind", ["hard", "dynamic"])
def test_the_preprocessor_of_mmdetection3d(kind: str) -> None:
    models = library("mmdet3d.models.data_preprocessors")
    most = {} if kind == "hard" else {"max_num_points": -1}
    preprocessor = models.Det3DDataPreprocessor(
        voxel=True, voxel_type=kind, voxel_layer={**SETTINGS, **most}
    )
    theirs = preprocessor.voxelize(clouds(), [None] * 3)
    with swin_stand_in.job(detection.install):
        ours = preprocessor.voxelize(clouds(), [None] * 3)
        assert computed("VoxelizationByGridShape") == (3 if kind == "hard" else 0)
    assert ours.keys() == theirs.keys()
    for name, wanted in theirs.items():
        assert_same(ours[name], wanted)


def test_mmcv_without_operators_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """mmcv-lite has no compiled part, so its operators cannot be imported."""
    for name in list(sys.modules):
        if name.partition(".ops")[0] == "mmcv" and name.startswith("mmcv.ops"):
            monkeypatch.delitem(sys.modules, name)
    rest = tuple(each for each in openmmlab.LEFT_OUT if each != "mmcv._ext")
    monkeypatch.setattr(openmmlab, "LEFT_OUT", rest)
    monkeypatch.delitem(sys.modules, OF_MMDET3D)
    with swin_stand_in.job(detection.install):
        with pytest.raises(ImportError, match="_ext"):
            library(OF_MMCV)
        names = [each["name"] for each in reports.OPERATORS.status().seen]
        assert not any("oxelization" in name for name in names), names
    assert "paceline" not in capfd.readouterr().err
