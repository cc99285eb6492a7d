# SPDX-License-Identifier: Apache-2.0
"""SimOTA and RTMDet's assigner of mmdetection, and the FCOS3D head of mmdetection3d, with the
operators in their places compute what they compute alone.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import swin_stand_in
import torch
from openmmlab import library
from paceline._core import reports
from paceline._inject import detection

Tensor = torch.Tensor


@pytest.fixture
def data() -> Any:
    return library("mmengine.structures").InstanceData


@pytest.fixture
def assigner() -> Any:
    module = library("mmdet.models.task_modules.assigners.sim_ota_assigner")
    return module.SimOTAAssigner(center_radius=2.5)


@pytest.fixture
def head() -> Any:
    module = library("mmdet3d.models.dense_heads.fcos_mono3d_head")
    library("mmdet.models.losses")
    torch.manual_seed(1)
    return module.FCOSMono3DHead(
        num_classes=10,
        in_channels=8,
        feat_channels=8,
        stacked_convs=1,
        cls_branch=(8,),
        reg_branch=((8,), (8,), (8,), (8,), ()),
        dir_branch=(8,),
        attr_branch=(8,),
        centerness_branch=(8,),
        pred_attrs=True,
        pred_velo=True,
        norm_cfg={"type": "GN", "num_groups": 2},
        train_cfg={"code_weight": [1.0, 1.0, 0.2, 1.0, 1.0, 1.0, 1.0, 0.05, 0.05]},
        strides=(8, 16, 32, 64, 128),
    )


def computed() -> int:
    return sum(each["computed"] for each in reports.OPERATORS.status().seen)


@pytest.fixture
def scenes(data: Any) -> list[Any]:
    """Images of 640 × 640 as YOLOX sees them."""
    draw = torch.Generator().manual_seed(2)
    grids = []
    for stride in (8, 16, 32):
        side = torch.arange(640 // stride) * float(stride) + stride / 2
        rows, columns = torch.meshgrid(side, side, indexing="ij")
        strides = torch.full_like(rows, stride)
        grids.append(torch.stack((columns, rows, strides, strides), -1).reshape(-1, 4))
    priors = torch.cat(grids)
    found = []
    for known in (1, 3, 0, 9, 20):
        corners = torch.rand(known, 2, generator=draw) * 500
        ends = corners + torch.rand(known, 2, generator=draw) * 130 + 10
        truths = data(
            bboxes=torch.cat((corners, ends), 1),
            labels=torch.randint(80, (known,), generator=draw),
        )
        middles = priors[:, :2] + torch.randn(priors.shape[0], 2, generator=draw) * priors[:, 2:]
        half = priors[:, 2:] * torch.rand(priors.shape[0], 2, generator=draw) * 4
        predictions = data(
            bboxes=torch.cat((middles - half, middles + half), 1),
            scores=torch.rand(priors.shape[0], 80, generator=draw),
            priors=priors,
        )
        found.append((predictions, truths))
    return found


def test_simota(assigner: Any, scenes: Any) -> None:
    theirs = [assigner.assign(*each) for each in scenes]
    with swin_stand_in.job(detection.install):
        ours = [assigner.assign(*each) for each in scenes]
        assert computed() == 4, "the picture without ground truths is the library's"
    for one, other in zip(ours, theirs, strict=True):
        assert type(one) is type(other) and one.num_gts == other.num_gts
        for name in ("gt_inds", "max_overlaps", "labels"):
            assert getattr(one, name).dtype == getattr(other, name).dtype
            torch.testing.assert_close(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("far", [True, False])
def test_simota_without_a_candidate(assigner: Any, scenes: Any, far: bool) -> None:
    predictions, truths = scenes[1]
    truths = truths.clone()
    truths.bboxes = truths.bboxes + (10_000.0 if far else 0.0)
    theirs = assigner.assign(predictions, truths)
    with swin_stand_in.job(detection.install):
        ours = assigner.assign(predictions, truths)
        assert computed() == 1
    assert float(theirs.max_overlaps.min()) == (0 if far else -100_000)
    torch.testing.assert_close(ours.max_overlaps, theirs.max_overlaps)
    assert torch.equal(ours.gt_inds, theirs.gt_inds)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_simota_in_mixed_precision(assigner: Any, scenes: Any, dtype: torch.dtype) -> None:
    """The original keeps costs of classes in 16 bits, so that near ones may go elsewhere."""
    for predictions, _ in scenes:
        predictions.scores = predictions.scores.to(dtype)
        predictions.priors = predictions.priors.to(dtype)
    theirs = [assigner.assign(*each) for each in scenes]
    with swin_stand_in.job(detection.install):
        ours = [assigner.assign(*each) for each in scenes]
        assert computed() == 4
    matched = sum(int((each.gt_inds > 0).sum()) for each in theirs)
    pairs = list(zip(ours, theirs, strict=True))
    different = sum(int((one.gt_inds != other.gt_inds).sum()) for one, other in pairs)
    assert matched > 50 and different <= matched * 0.1
    assert all(one.max_overlaps.dtype == other.max_overlaps.dtype for one, other in pairs)


def test_a_step_of_yolox(data: Any) -> None:
    heads = library("mmdet.models.dense_heads")
    torch.manual_seed(3)
    head = heads.YOLOXHead(
        num_classes=5,
        in_channels=8,
        feat_channels=8,
        stacked_convs=1,
        train_cfg={"assigner": {"type": "SimOTAAssigner"}},
    )
    features = [torch.randn(2, 8, 160 // stride, 160 // stride) for stride in (8, 16, 32)]
    truths = [
        data(
            bboxes=torch.tensor([[10.0, 10, 60, 60], [50, 20, 150, 140]])[:count],
            labels=torch.tensor([1, 4])[:count],
        )
        for count in (2, 1)
    ]
    metas = [{"img_shape": (160, 160)}] * 2

    def losses() -> dict[str, Tensor]:
        found: dict[str, Tensor] = head.loss_by_feat(*head(features), truths, metas)
        return found

    theirs = losses()
    with swin_stand_in.job(detection.install):
        ours = losses()
        assert computed() == 2
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-5, atol=1e-6)


@pytest.fixture
def soft_assigner() -> Any:
    module = library("mmdet.models.task_modules.assigners.dynamic_soft_label_assigner")
    return module.DynamicSoftLabelAssigner(topk=13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rtmdet_to_the_bit(soft_assigner: Any, scenes: Any, dtype: torch.dtype) -> None:
    for predictions, _ in scenes:
        predictions.scores = (predictions.scores * 6 - 6).to(dtype)
    theirs = [soft_assigner.assign(*each) for each in scenes]
    with swin_stand_in.job(detection.install):
        ours = [soft_assigner.assign(*each) for each in scenes]
        assert computed() == 4, "the picture without ground truths is the library's"
    assert sum(int((each.gt_inds > 0).sum()) for each in ours) > 50
    for one, other in zip(ours, theirs, strict=True):
        assert type(one) is type(other) and one.num_gts == other.num_gts
        for name in ("gt_inds", "max_overlaps", "labels"):
            assert getattr(one, name).dtype == getattr(other, name).dtype
            assert torch.equal(getattr(one, name), getattr(other, name))


def test_rtmdet_leaves_types_of_boxes(soft_assigner: Any, scenes: Any) -> None:
    predictions, truths = scenes[1]
    truths.bboxes = library("mmdet.structures.bbox").HorizontalBoxes(truths.bboxes)
    theirs = soft_assigner.assign(predictions, truths)
    with swin_stand_in.job(detection.install):
        ours = soft_assigner.assign(predictions, truths)
        assert computed() == 0
        assert "HorizontalBoxes in place of a tensor" in reports.OPERATORS.status().switch
    assert torch.equal(ours.gt_inds, theirs.gt_inds)


@pytest.mark.parametrize("with_autocast", [False, True])
def test_a_step_of_rtmdet(data: Any, with_autocast: bool) -> None:
    """Losses and gradients are the same to the bit."""
    heads = library("mmdet.models.dense_heads")
    torch.manual_seed(3)
    head = heads.RTMDetHead(
        num_classes=5,
        in_channels=8,
        feat_channels=8,
        stacked_convs=1,
        anchor_generator={"type": "MlvlPointGenerator", "offset": 0, "strides": [8, 16, 32]},
        bbox_coder={"type": "DistancePointBBoxCoder"},
        loss_cls={"type": "QualityFocalLoss", "use_sigmoid": True, "beta": 2.0},
        loss_bbox={"type": "GIoULoss", "loss_weight": 2.0},
        norm_cfg={"type": "GN", "num_groups": 2},
        train_cfg={
            "assigner": {"type": "DynamicSoftLabelAssigner", "topk": 13},
            "allowed_border": -1,
            "pos_weight": -1,
            "debug": False,
        },
    )
    features = [torch.randn(2, 8, 160 // stride, 160 // stride) for stride in (8, 16, 32)]
    truths = [
        data(
            bboxes=torch.tensor([[10.0, 10, 60, 60], [50, 20, 150, 140]])[:count],
            labels=torch.tensor([1, 4])[:count],
        )
        for count in (2, 1)
    ]
    metas = [{"img_shape": (160, 160), "pad_shape": (160, 160)}] * 2

    def step() -> list[Tensor]:
        head.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=with_autocast):
            found = head.loss_by_feat(*head(features), truths, metas)
        losses = [each for some in found.values() for each in some]
        torch.stack(losses).sum().backward()
        gradients = [each.grad.clone() for each in head.parameters() if each.grad is not None]
        return [*(each.detach() for each in losses), *gradients]

    theirs = step()
    with swin_stand_in.job(detection.install):
        ours = step()
        assert computed() == 2, reports.OPERATORS.status().switch
    assert len(ours) == len(theirs)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def pictures(data: Any, counts: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    boxes_of = library("mmdet3d.structures").CameraInstance3DBoxes
    draw = torch.Generator().manual_seed(4)
    solid, flat = [], []
    for known in counts:
        centers = torch.rand(known, 2, generator=draw) * 256
        half = torch.rand(known, 2, generator=draw) * 100 + 4
        labels = torch.randint(10, (known,), generator=draw)
        boxes = boxes_of(torch.rand(known, 9, generator=draw) * 10 + 1, box_dim=9)
        solid.append(
            data(
                bboxes_3d=boxes,
                labels_3d=labels,
                centers_2d=centers,
                depths=torch.rand(known, generator=draw) * 50,
                attr_labels=torch.randint(9, (known,), generator=draw),
            )
        )
        flat.append(data(bboxes=torch.cat((centers - half, centers + half), 1), labels=labels))
    return solid, flat


@pytest.mark.parametrize("has_attributes", [True, False])
def test_a_step_of_fcos3d(head: Any, data: Any, has_attributes: bool) -> None:
    head.pred_attrs = has_attributes
    features = [torch.randn(3, 8, 256 // stride, 256 // stride) for stride in head.strides]

    def step() -> tuple[dict[str, Tensor], list[Tensor], list[Any]]:
        solid, flat = copy.deepcopy(pictures(data, (4, 0, 6)))
        for each in [] if has_attributes else solid:
            del each.attr_labels
        head.zero_grad()
        losses = head.loss_by_feat(*head(features), solid, flat, [{}] * 3)
        sum(losses.values()).backward()
        gradients = [each.grad.clone() for each in head.parameters() if each.grad is not None]
        return losses, gradients, solid

    theirs = step()
    with swin_stand_in.job(detection.install):
        ours = step()
        assert computed() == 1, reports.OPERATORS.status().switch
    for name, value in theirs[0].items():
        torch.testing.assert_close(ours[0][name], value, rtol=1e-5, atol=1e-6)
    for one, other in zip(ours[1], theirs[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    for one, other in zip(ours[2], theirs[2], strict=True):
        assert torch.equal(one.bboxes_3d.tensor, other.bboxes_3d.tensor)
        assert torch.equal(one.attr_labels, other.attr_labels)
