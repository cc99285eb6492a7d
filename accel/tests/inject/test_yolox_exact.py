# SPDX-License-Identifier: Apache-2.0
"""SimOTA in the head of YOLOX's repository after 0.3.0: the same assignment to the bit, in 16 bits,
too.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import swin_stand_in
import torch
import yolox_exact_fakes
import yolox_fake
from paceline._core import explain, reports
from paceline._inject import detection, yolox_forms
from yolox_exact_fakes import YOLOXHead, later_scene

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The stand-in, whose code is made the known one."""
    module = ModuleType(yolox_fake.MODULE)
    module.YOLOXHead = YOLOXHead  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, yolox_fake.MODULE, module)
    later = yolox_forms.FORMS[1]
    digest = detection._digest(later, YOLOXHead, vars(yolox_exact_fakes))
    known = dataclasses.replace(later, digests=("another", digest))
    monkeypatch.setattr(detection, "FORMS", (yolox_forms.FORMS[0], known))
    return module


@pytest.fixture
def patched() -> Iterator[None]:
    with swin_stand_in.job(detection.install):
        yield


def assigned(given: dict[str, Any]) -> Any:
    return YOLOXHead(3).get_assignments(**given)


def said() -> dict[str, Any]:
    (seen,) = reports.OPERATORS.status().seen
    return dict(seen)


def check(scenes: list[dict[str, Any]], head: Any = None) -> int:
    """Compares with the original, and returns how many priors are matched."""
    head = head or YOLOXHead(3)
    theirs = [head.get_assignments(**each) for each in scenes]
    with swin_stand_in.job(detection.install):
        ours = [head.get_assignments(**each) for each in scenes]
        assert said()["computed"] == len(scenes)
        assert f"on for {yolox_fake.MODULE}.YOLOXHead: {len(scenes)} calls" in explain.explain()
    for one, other in zip(ours, theirs):
        assert type(one[4]) is int and one[4] == other[4]
        for found, wanted in zip(one[:4], other[:4]):
            assert found.dtype == wanted.dtype and torch.equal(found, wanted)
    return sum(each[4] for each in ours)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_it_is_the_original_to_the_bit(dtype: torch.dtype) -> None:
    assert check([later_scene(seed, 1 + seed % 9, dtype=dtype) for seed in range(500)]) > 2500


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_crowded_scenes(dtype: torch.dtype) -> None:
    scenes = [later_scene(seed, 60, 80, dtype) for seed in range(40)]
    assert check(scenes, YOLOXHead(80)) > 1000


def test_truths_that_want_more_priors_than_lie_in_their_regions() -> None:
    """In a corner of the image a centre region has three priors, and ten predictions are right."""
    given = later_scene(0, 2)
    given["gt_bboxes_per_image"][0] = torch.tensor([1.0, 1.0, 40.0, 40.0])
    given["bboxes_preds_per_image"][:] = given["gt_bboxes_per_image"][0]
    _, matched, overlaps, index, count = assigned(given)
    assert int((index == 0).sum()) > 3 and count == int(matched.sum()) and (overlaps > 0).any()
    assert check([given]) == count


def test_a_prediction_that_is_no_number() -> None:
    scenes = []
    for seed in range(20):
        given = later_scene(seed, 4)
        given["bboxes_preds_per_image"][seed::7, seed % 4] = float("nan")
        scenes.append(given)
    theirs = [assigned(each) for each in scenes]
    with swin_stand_in.job(detection.install):
        ours = [assigned(each) for each in scenes]
        assert said()["computed"] == len(scenes)
    for one, other in zip(ours, theirs):
        assert (
            one[4] == other[4] and torch.equal(one[1], other[1]) and torch.equal(one[3], other[3])
        )


def test_nothing_is_matched_where_no_prior_lies_in_a_region(patched: None) -> None:
    given = later_scene(0, 2)
    given["gt_bboxes_per_image"][:, :2] = -500.0
    classes, matched, overlaps, index, count = assigned(given)
    assert said()["computed"] == 1
    assert count == 0 and not matched.any() and matched.shape == (84,)
    assert len(classes) == len(overlaps) == len(index) == 0
    assert classes.dtype is torch.float32 and index.dtype is torch.int64


def test_the_programs_autocast_stays_on(patched: None) -> None:
    """Under it the library's own functions compute overlaps and regions."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = assigned(later_scene(4))
        assert torch.is_autocast_cpu_enabled()
    assert said()["computed"] == 1
    assert all(torch.equal(one, other) for one, other in zip(found[:4], assigned(later_scene(4))))


def test_the_class_of_pixeltable(library: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the same code under another name."""
    monkeypatch.delattr(library, "YOLOXHead")
    library.YoloxHead = YOLOXHead  # type: ignore[attr-defined]
    known = dataclasses.replace(yolox_forms.FORMS[2], digests=detection.FORMS[1].digests)
    monkeypatch.setattr(detection, "FORMS", (known,))
    with swin_stand_in.job(detection.install):
        assert assigned(later_scene(1))[4] > 0
        assert (said()["name"], said()["computed"]) == (f"{yolox_fake.MODULE}.YoloxHead", 1)


def test_calls_that_are_left(patched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(YOLOXHead):
        def get_geometry_constraint(self, *args: Any) -> Any:
            return super().get_geometry_constraint(*args)

    def left(reason: str, head: YOLOXHead, **changed: Any) -> None:
        before = said()
        head.get_assignments(**later_scene(1, **changed))
        after = said()
        assert reason in after["reason"], after["reason"]
        assert (after["computed"], after["left"]) == (0, before["left"] + 1)

    head, given = YOLOXHead(3), later_scene(1)
    left("a subclass with a get_geometry_constraint of its own", Own(3))
    left("the mode that spares a GPU's memory", head, mode="cpu")
    left("a tensor of float64", head, gt_classes=given["gt_classes"].double())
    left("tensors of other shapes", head, x_shifts=given["x_shifts"][0])
    known = yolox_exact_fakes.bboxes_iou
    monkeypatch.setattr(yolox_exact_fakes, "bboxes_iou", lambda *boxes: known(*boxes))
    left("a function that the program has replaced", head)


def test_other_code_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "FORMS", yolox_forms.FORMS)  # the stand-in is not the known code
    original = YOLOXHead.get_assignments
    with swin_stand_in.job(detection.install):
        assert YOLOXHead.get_assignments is original
        assert said()["reason"].startswith("its code is not that of YOLOX's main branch")


def test_the_form_is_chosen_by_the_arguments(
    library: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "YOLOXHead", yolox_fake.YOLOXHead)
    with swin_stand_in.job(detection.install):
        assert said()["reason"] == "its code is not that of yolox 0.3.0"
