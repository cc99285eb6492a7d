# SPDX-License-Identifier: Apache-2.0
"""SimOTA in YOLOX's own head is the operator's where its code is that of the known release."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import swin_stand_in
import torch
import yolox_fake
from paceline._core import explain, reports
from paceline._inject import detection, yolox_forms
from paceline.ops import _native
from yolox_fake import YOLOXHead, scene

pytestmark = pytest.mark.skipif(bool(_native.why_unavailable()), reason="no library")
FORM = yolox_forms.FORMS[0]


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in, whose code is made the known one."""
    module = ModuleType(yolox_fake.MODULE)
    module.YOLOXHead = YOLOXHead  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, yolox_fake.MODULE, module)
    digest = detection._digest(FORM, YOLOXHead, vars(yolox_fake))
    known = dataclasses.replace(FORM, digests=(digest,))
    monkeypatch.setattr(detection, "FORMS", (known,))


@pytest.fixture
def patched() -> Iterator[None]:
    with swin_stand_in.job(detection.install):
        yield


def assigned(head: YOLOXHead, given: dict[str, Any]) -> Any:
    return head.get_assignments(**given)


def said() -> dict[str, Any]:
    (seen,) = reports.OPERATORS.status().seen
    return dict(seen)


def test_it_is_the_original() -> None:
    scenes = [scene(seed, 1 + seed % 9) for seed in range(200)]
    head = YOLOXHead(3)
    theirs = [assigned(head, each) for each in scenes]
    with swin_stand_in.job(detection.install):
        ours = [assigned(head, each) for each in scenes]
        assert said()["computed"] == 200
        assert f"on for {yolox_fake.MODULE}.YOLOXHead: 200 calls" in explain.explain()
    assert sum(each[4] for each in ours) > 1000
    for one, other in zip(ours, theirs):
        assert type(one[4]) is int and one[4] == other[4]
        for i in (0, 1, 3):
            assert one[i].dtype == other[i].dtype and torch.equal(one[i], other[i])
        assert one[2].dtype is torch.float32
        torch.testing.assert_close(one[2], other[2], rtol=1e-4, atol=1e-6)


def test_calls_that_are_left(patched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(YOLOXHead):
        def get_in_boxes_info(self, *args: Any) -> Any:
            return super().get_in_boxes_info(*args)

    def left(reason: str, head: YOLOXHead, **changed: Any) -> None:
        before = said()
        assigned(head, scene(1, **changed))
        after = said()
        assert reason in after["reason"], after["reason"]
        assert (after["computed"], after["left"]) == (0, before["left"] + 1)

    head, given = YOLOXHead(3), scene(1)
    left("a subclass with a get_in_boxes_info of its own", Own(3))
    left("the mode that spares a GPU's memory", head, mode="cpu")
    left("a tensor of float16", head, gt_bboxes_per_image=given["gt_bboxes_per_image"].half())
    left("a tensor of bfloat16", head, cls_preds=given["cls_preds"].bfloat16())
    left("tensors of other shapes", head, total_num_anchors=1)
    left("tensors of other shapes", YOLOXHead(80))
    monkeypatch.setattr(yolox_fake, "bboxes_iou", lambda *_: None)
    left("a function that the program has replaced", head)


def test_other_code_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "FORMS", (FORM,))  # the stand-in is not yolox 0.3.0
    original = YOLOXHead.get_assignments
    with swin_stand_in.job(detection.install):
        assert YOLOXHead.get_assignments is original
        assert said()["reason"] == "its code is not that of yolox 0.3.0"


def test_other_arguments_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    class Newer(YOLOXHead):
        def get_assignments(self, batch_idx: int, num_gt: int) -> Any:
            return batch_idx

    monkeypatch.setattr(sys.modules[yolox_fake.MODULE], "YOLOXHead", Newer)
    original = Newer.get_assignments
    with swin_stand_in.job(detection.install):
        assert Newer.get_assignments is original
        assert said()["reason"] == "its get_assignments has the arguments batch_idx, num_gt"
