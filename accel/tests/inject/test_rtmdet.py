# SPDX-License-Identifier: Apache-2.0
"""RTMDet's assignment is the original's to the bit, without tensors of priors × ground truths ×
classes, and the library's where anything about a call is not known.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import rtmdet_fake
import simota_fake
import swin_stand_in
import torch
from paceline._core import explain, reports
from paceline._inject import detection, rtmdet_forms
from rtmdet_fake import DynamicSoftLabelAssigner, scene
from torch.utils._python_dispatch import TorchDispatchMode

Tensor = torch.Tensor


def _has_halves() -> bool:
    try:
        torch.ones(1, dtype=torch.float16).sigmoid()
    except RuntimeError:
        return False
    return True


DTYPES = [torch.float32, torch.bfloat16, *([torch.float16] if _has_halves() else [])]


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The stand-in, whose code is made the known one."""
    module = ModuleType(rtmdet_fake.MODULE)
    module.DynamicSoftLabelAssigner = DynamicSoftLabelAssigner  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, rtmdet_fake.MODULE, module)
    (form,) = rtmdet_forms.FORMS
    digest = detection._digest(form, DynamicSoftLabelAssigner, vars(rtmdet_fake))
    monkeypatch.setattr(detection, "FORMS", (dataclasses.replace(form, digests=(digest,)),))
    return module


@pytest.fixture
def patched() -> Iterator[None]:
    with swin_stand_in.job(detection.install):
        yield


def said() -> dict[str, Any]:
    (seen,) = reports.OPERATORS.status().seen
    return dict(seen)


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other) and one.num_gts == other.num_gts
    for name in ("gt_inds", "labels", "max_overlaps"):
        ours, theirs = getattr(one, name), getattr(other, name)
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs), name


def check(scenes: list[Any], assigner: Any = None) -> int:
    """Compares with the original, and returns how many priors are matched."""
    assigner = assigner or DynamicSoftLabelAssigner()
    theirs: list[Any] = [assigner.assign(*each) for each in scenes]
    with swin_stand_in.job(detection.install):
        ours: list[Any] = [assigner.assign(*each) for each in scenes]
        assert said()["computed"] == len(scenes), said()
        name = f"{rtmdet_fake.MODULE}.DynamicSoftLabelAssigner"
        assert f"on for {name}: {len(scenes)} calls" in explain.explain()
    for one, other in zip(ours, theirs):
        assert_same(one, other)
    return sum(int((each.gt_inds > 0).sum()) for each in ours)


@pytest.mark.parametrize("dtype", DTYPES)
def test_it_is_the_original_to_the_bit(dtype: torch.dtype) -> None:
    assert check([scene(seed, 1 + seed % 9, dtype=dtype) for seed in range(200)]) > 1000


@pytest.mark.parametrize("dtype", DTYPES)
def test_under_autocast(dtype: torch.dtype) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert check([scene(seed, 5, dtype=dtype) for seed in range(60)]) > 300


def test_crowded_scenes() -> None:
    assert check([scene(seed, 60, 80, side=128) for seed in range(8)]) > 200


def test_other_settings() -> None:
    assigner = DynamicSoftLabelAssigner(soft_center_radius=2.0, topk=5, iou_weight=0.5)
    assert check([scene(seed, 4) for seed in range(50)], assigner) > 200


def test_truths_that_cost_alike_and_priors_that_do() -> None:
    """They go to the lowest index."""
    predictions, truths = scene(3, 1)
    assigner = DynamicSoftLabelAssigner(topk=3)  # the third of them is one of four
    result = assigner.assign(predictions, truths)
    assert check([(predictions, truths)], assigner) == int(result.gt_inds.sum()) == 3
    predictions, truths = scene(2, 2)
    assert int(DynamicSoftLabelAssigner().assign(predictions, truths).gt_inds.max()) == 1
    check([(predictions, truths)])


def test_no_prior_inside() -> None:
    predictions, truths = scene(0, 3)
    truths.bboxes += 500
    assert check([(predictions, truths)]) == 0


def test_centers_of_masks() -> None:
    scenes = []
    for seed in range(20):
        predictions, truths = scene(seed, 4)
        draw = torch.Generator().manual_seed(seed)
        truths.masks = torch.rand(4, 64, 64, generator=draw) < 0.1
        scenes.append((predictions, truths))
    assert check(scenes) > 50


def test_keywords_ignored_truths_and_labels_of_32_bits(patched: None) -> None:
    predictions, truths = scene(1)
    expected = inspect.unwrap(DynamicSoftLabelAssigner.assign)(
        DynamicSoftLabelAssigner(), predictions, truths
    )
    truths.labels = truths.labels.int()
    given = {"pred_instances": predictions, "gt_instances": truths, "gt_instances_ignore": truths}
    assert_same(DynamicSoftLabelAssigner().assign(**given, more=1), expected)
    assert said()["computed"] == 1


class _Sizes(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.largest = self.waits = 0

    def __torch_dispatch__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for each in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(each, Tensor):
                self.largest = max(self.largest, each.numel())
        name = function.overloadpacket.__name__
        self.waits += name in ("_local_scalar_dense", "nonzero", "masked_select")
        return result


def test_memory_and_waiting_with_many_truths() -> None:
    """No tensor has a value for each pair and class, and the numbers of waits are fixed."""
    predictions, truths = scene(0, 300, 80, side=128)
    given = {"pred_instances": predictions, "gt_instances": truths}
    call = rtmdet_forms._read(DynamicSoftLabelAssigner(), given, vars(rtmdet_fake))
    assert not isinstance(call, str)
    with _Sizes() as sizes:
        result = call.compute()
    assert_same(result, DynamicSoftLabelAssigner().assign(predictions, truths))
    pairs = len(predictions.priors) * 300
    assert sizes.largest < pairs * 80 / 4, "dense costs have 80 values for each pair"
    assert sizes.waits <= 5, "two of them look at labels, which a GPU leaves out"


def test_calls_that_are_left(patched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Matching(DynamicSoftLabelAssigner):
        def dynamic_k_matching(self, *args: Any) -> Any:
            return super().dynamic_k_matching(*args)

    class GIoU(simota_fake.BboxOverlaps2D):
        pass

    class Boxes(Tensor):
        pass

    def left(reason: str, assigner: Any, **changes: Any) -> None:
        predictions, truths = scene(0)
        for name, value in changes.items():
            where, _, field = name.partition("_")
            setattr(predictions if where == "pred" else truths, field, value)
        before = said()
        assigner.assign(predictions, truths)
        after = said()
        assert reason in after["reason"], after["reason"]
        assert (after["computed"], after["left"]) == (0, before["left"] + 1)

    plain = DynamicSoftLabelAssigner()
    predictions, truths = scene(0)
    left("a subclass with a dynamic_k_matching of its own", Matching())
    left("overlaps of GIoU", DynamicSoftLabelAssigner(iou_calculator=GIoU()))
    left("a negative iou_weight", DynamicSoftLabelAssigner(iou_weight=-1.0))
    left("a Boxes in place of a tensor", plain, gt_bboxes=truths.bboxes.as_subclass(Boxes))
    left("a tensor of float64", plain, pred_scores=predictions.scores.double())
    left("a tensor with a gradient", plain, pred_scores=predictions.scores.requires_grad_())
    left("no ground truths", plain, gt_bboxes=truths.bboxes[:0], gt_labels=truths.labels[:0])
    left("a tensor of float32", plain, gt_masks=torch.ones(5, 64, 64))
    other = DynamicSoftLabelAssigner()
    other.soft = True  # type: ignore[attr-defined]
    left("settings that this release", other)
    with monkeypatch.context() as patch:
        patch.setattr(rtmdet_fake, "EPS", 1e-8)
        left("constants that this release", plain)
    with monkeypatch.context() as patch:
        known = rtmdet_fake.center_of_mass
        patch.setattr(rtmdet_fake, "center_of_mass", lambda *args: known(*args))
        left("a function that the program has replaced", plain)


@pytest.mark.parametrize("bad", ["scores", "bboxes", "far"])
def test_what_is_not_finite_is_the_librarys(patched: None, bad: str) -> None:
    predictions, truths = scene(0, 2)
    if bad == "far":  # the only priors inside lie where the other ground truth costs infinity
        truths.bboxes = torch.tensor([[1.0, 1, 20, 20], [900.0, 900, 901, 901]])
        predictions.priors[:, 2] = 0.5
    else:
        getattr(predictions, bad)[::3] = float("nan")
    expected = inspect.unwrap(DynamicSoftLabelAssigner.assign)(
        DynamicSoftLabelAssigner(), predictions, truths
    )
    result: Any = DynamicSoftLabelAssigner().assign(predictions, truths)
    assert torch.equal(result.gt_inds, expected.gt_inds)
    assert (said()["computed"], said()["left"]) == (0, 1)
    assert "the operator refuses it: ValueError" in said()["reason"]


def test_a_prior_that_is_far_from_all_truths() -> None:
    """Its costs are infinite, and others are matched."""
    predictions, truths = scene(0, 1)
    truths.bboxes = torch.tensor([[-2000.0, -2000, 2000, 2000]])
    predictions.priors[5, :2] = 1900
    assert check([(predictions, truths)]) >= 1


@pytest.mark.parametrize(
    "variables", [{"PACELINE_OPERATORS": "Disabled"}, {"PACELINE_NUMERICS": "Bitwise"}]
)
def test_not_asked_for(variables: dict[str, str]) -> None:
    original = DynamicSoftLabelAssigner.assign
    with swin_stand_in.job(detection.install, **variables):
        assert DynamicSoftLabelAssigner.assign is original


def test_other_code_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        detection, "FORMS", rtmdet_forms.FORMS
    )  # the stand-in is not the known code
    original = DynamicSoftLabelAssigner.assign
    with swin_stand_in.job(detection.install):
        assert DynamicSoftLabelAssigner.assign is original
        assert said()["reason"] == "its code is not that of mmdetection 3.0.0 to 3.3.0"
