# SPDX-License-Identifier: Apache-2.0
"""FCOS3D targets against the original algorithm."""

from __future__ import annotations

from typing import Any

import originals
import pytest
import scenes
import torch
from paceline import ops
from paceline.ops import _native
from scenes import HEAD
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

INF, NAN = float("inf"), float("nan")


def targets_of(scene: scenes.Fcos3d) -> ops.FCOS3DTargets:
    every = scene.batch()
    return ops.fcos3d_targets(
        scene.points,
        scene.offsets(),
        every.centers,
        every.depths,
        every.bboxes,
        every.boxes_3d,
        every.labels,
        every.attributes,
        head=ops.FCOS3DHead(strides=HEAD.strides, regress_ranges=HEAD.ranges),
    )


def check(scene: scenes.Fcos3d) -> int:
    """Compares with the original, and returns how many points have a ground truth."""
    found = targets_of(scene)
    labels, boxes, centerness, attributes = originals.fcos3d(scene.points, scene.images, HEAD)
    matched = 0
    for level in range(len(scene.points)):
        assert torch.equal(found.labels_3d[level], labels[level])
        assert torch.equal(found.attr_targets[level], attributes[level])
        own = labels[level].ne(HEAD.background)
        matched += int(own.sum())
        # To the bit: labels may agree where two ground truths of one class were confused.
        torch.testing.assert_close(
            found.bbox_targets_3d[level][own], boxes[level][own], rtol=0, atol=0, equal_nan=True
        )
        torch.testing.assert_close(
            found.centerness_targets[level][own], centerness[level][own], rtol=1e-6, atol=1e-7
        )
        assert not found.bbox_targets_3d[level][~own].any()
        assert not found.centerness_targets[level][~own].any()
    return matched


def test_ten_thousand_scenes_are_assigned_as_the_original_does() -> None:
    torch.manual_seed(1)
    assert sum(check(scenes.fcos3d(40, whole=i % 2 == 0)) for i in range(250)) > 30_000


def test_plain_torch_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "takes", lambda *_: False)
    torch.manual_seed(2)
    assert sum(check(scenes.fcos3d(10, whole=i % 2 == 0)) for i in range(20)) > 500


def test_float64_and_float32_assign_whole_numbers_alike() -> None:
    torch.manual_seed(3)
    for _ in range(20):
        scene = scenes.fcos3d(10, whole=True)
        narrow, wide = targets_of(scene), targets_of(scene.double())
        check(scene.double())
        for level in range(3):
            assert wide.bbox_targets_3d[level].dtype is torch.float64
            assert torch.equal(narrow.labels_3d[level], wide.labels_3d[level])
            assert torch.equal(narrow.attr_targets[level], wide.attr_targets[level])
            for one, other in (
                (narrow.bbox_targets_3d[level], wide.bbox_targets_3d[level]),
                (narrow.centerness_targets[level], wide.centerness_targets[level]),
            ):
                torch.testing.assert_close(one.double(), other, rtol=1e-6, atol=1e-6)


def large() -> scenes.Fcos3d:
    """Over 400,000 rows, so that the library works with three threads."""
    points = [scenes.grid(256 >> i, 200 >> i, int(stride)) for i, stride in enumerate(HEAD.strides)]

    def image() -> originals.Objects:
        centers = torch.rand(12, 2) * torch.tensor([2048.0, 1600.0])
        extent = torch.rand(12, 4) * 90
        return originals.Objects(
            torch.cat((centers - extent[:, :2], centers + extent[:, 2:]), 1),
            torch.randint(0, 10, (12,)),
            torch.randn(12, 7),
            centers,
            torch.rand(12) * 60,
            torch.randint(0, 9, (12,)),
        )

    return scenes.Fcos3d(points, [image() for _ in range(7)])


def test_number_of_threads_changes_nothing() -> None:
    torch.manual_seed(4)
    scene = large()
    once = targets_of(scene)
    assert sum(len(each) for each in once.labels_3d) > 400_000
    assert sum(int(each.ne(HEAD.background).sum()) for each in once.labels_3d) > 300
    torch.set_num_threads(3)
    try:
        again = targets_of(scene)
    finally:
        torch.set_num_threads(1)
    for one, other in zip(once, again):
        assert all(torch.equal(a, b) for a, b in zip(one, other))


def one_point(**changed: Any) -> dict[str, Any]:
    """A point and two ground truths around it. Names of settings go to the head."""
    settings: dict[str, Any] = {"strides": [8], "regress_ranges": [(-1, 48)]}
    for name in ops.FCOS3DHead._fields:
        if name in changed:
            settings[name] = changed.pop(name)
    return {
        "points": [torch.tensor([[0.0, 0.0]])],
        "offsets": [0, 2],
        "centers_2d": torch.tensor([[1.0, 0.0], [2.0, 0.0]]),
        "depths": torch.tensor([10.0, 20.0]),
        "bboxes": torch.tensor([[-9.0, -9.0, 9.0, 9.0]] * 2),
        "bboxes_3d": torch.ones(2, 9),
        "labels_3d": torch.tensor([4, 5]),
        "head": ops.FCOS3DHead(**settings),
        **changed,
    }


def label_of(**changed: Any) -> int:
    return int(ops.fcos3d_targets(**one_point(**changed)).labels_3d[0])


@pytest.mark.parametrize("plain", [False, True])
def test_edges(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plain:
        monkeypatch.setattr(_native, "takes", lambda *_: False)
    assert label_of() == 4
    # Of two squares that differ in their last bit the roots are equal: the first one wins.
    near = torch.tensor([[3.0000002, 0.0], [3.0, 0.0]])
    assert label_of(centers_2d=near) == 5
    root = torch.tensor([[1.0, 3.5e-4], [1.0, 0.0]])
    assert label_of(centers_2d=root) == 4
    # A point on the edge of the region is outside; the ends of a range are inside.
    assert label_of(centers_2d=torch.tensor([[12.0, 0.0], [0.0, -12.0]])) == 10
    assert label_of(regress_ranges=[(9, 48)]) == label_of(regress_ranges=[(-1, 9)]) == 4
    assert label_of(regress_ranges=[(9.5, 48)]) == label_of(regress_ranges=[(-1, 8.5)]) == 10
    for bad in (NAN, INF, -INF):
        assert label_of(centers_2d=torch.tensor([[bad, 0.0], [2.0, 0.0]])) == 5
        assert label_of(points=[torch.tensor([[bad, 0.0]])]) == 10
    assert label_of(bboxes=torch.tensor([[-9.0, NAN, 9.0, 9.0], [-9.0, -9.0, 9.0, 9.0]])) == 5
    assert label_of(bboxes=torch.tensor([[-9.0, -9.0, INF, 9.0], [-9.0, -9.0, 9.0, 9.0]])) == 5
    assert label_of(depths=torch.tensor([NAN, 1.0])) == 4


@pytest.mark.parametrize("plain", [False, True])
def test_shapes_of_nothing(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plain:
        monkeypatch.setattr(_native, "takes", lambda *_: False)
    none = {
        "centers_2d": torch.zeros(0, 2),
        "depths": torch.zeros(0),
        "bboxes": torch.zeros(0, 4),
        "bboxes_3d": torch.zeros(0, 7),
        "labels_3d": torch.zeros(0, dtype=torch.int64),
    }
    for offsets, rows in (([0, 0, 0], 2), ([0], 0)):
        found = ops.fcos3d_targets(**one_point(**none, offsets=offsets))
        assert found.labels_3d[0].tolist() == [10] * rows
        assert found.attr_targets[0].tolist() == [9] * rows
        assert found.bbox_targets_3d[0].shape == (rows, 7)
        assert found.centerness_targets[0].tolist() == [0] * rows
    empty = ops.fcos3d_targets(**one_point(points=[torch.zeros(0, 2)]))
    assert empty.bbox_targets_3d[0].shape == (0, 9)


def test_arguments_stay_and_may_have_other_layouts() -> None:
    arguments = one_point(bboxes_3d=torch.randn(10, 2).t()[:, :9])
    before = arguments["bboxes_3d"].clone()
    plain = ops.fcos3d_targets(**arguments)
    assert torch.equal(arguments["bboxes_3d"], before)
    again = ops.fcos3d_targets(
        **{
            **arguments,
            "bboxes_3d": before.requires_grad_(),
            "labels_3d": arguments["labels_3d"].to(torch.int32),
            "offsets": torch.tensor([0, 2], dtype=torch.int32),
        }
    )
    assert torch.equal(plain.bbox_targets_3d[0], again.bbox_targets_3d[0])
    assert not again.bbox_targets_3d[0].requires_grad
    half = ops.fcos3d_targets(**one_point(points=[torch.zeros(1, 2, dtype=torch.bfloat16)]))
    assert half.centerness_targets[0].dtype is torch.float32
    assert half.attr_targets[0].tolist() == [9]
    other = ops.fcos3d_targets(**one_point(norm_on_bbox=False))
    assert other.bbox_targets_3d[0][0, 0] == -1
    assert plain.bbox_targets_3d[0][0, 0] == -0.125


def test_defaults_of_torch_change_nothing() -> None:
    wanted = ops.fcos3d_targets(**one_point())
    arguments = one_point()
    with scenes.other_defaults():
        found = ops.fcos3d_targets(**arguments)
    for one, other in zip(wanted, found):
        assert torch.equal(one[0], other[0])


def test_settings_are_read_anew_in_each_call() -> None:
    """Those of plain numbers are kept, so another call must not find what the first one had."""
    assert label_of(background_label=7, centers_2d=torch.full((2, 2), 99.0)) == 7
    with pytest.raises(TypeError, match=r"^background_label is 7.0: pass a whole number"):
        label_of(background_label=7.0)
    for strides in ([8], [torch.tensor(8.0)]):
        far, ranges = torch.full((2, 2), 20.0), [[-1, 48]]
        arguments = one_point(centers_2d=far, strides=strides, regress_ranges=ranges)
        assert int(ops.fcos3d_targets(**arguments).labels_3d[0]) == 10
        strides[0] *= 2
        assert int(ops.fcos3d_targets(**arguments).labels_3d[0]) == 4
        ranges[0][1] = 8
        assert int(ops.fcos3d_targets(**arguments).labels_3d[0]) == 10
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^strides\[0\] is 0: pass a finite number above 0"):
            label_of(strides=[0])


def test_subclasses_of_tensors_are_computed_by_torch() -> None:
    arguments = one_point()
    arguments["bboxes"] = arguments["bboxes"].as_subclass(scenes.Own)
    found = ops.fcos3d_targets(**arguments)
    assert int(found.labels_3d[0]) == 4
    assert isinstance(found.labels_3d[0], scenes.Own)  # as the library's results are not
    with FakeTensorMode():
        fake = ops.fcos3d_targets(**one_point())
    assert isinstance(fake.bbox_targets_3d[0], FakeTensor)
    assert fake.bbox_targets_3d[0].shape == (1, 9)


def test_a_level_may_be_changed_in_place_before_the_backward_of_another() -> None:
    points = [torch.zeros(1, 2), torch.zeros(1, 2)]
    found = ops.fcos3d_targets(
        **one_point(points=points, strides=[8, 16], regress_ranges=[(-1, 48)] * 2)
    ).bbox_targets_3d
    weight = torch.ones(1, 9, requires_grad=True)
    loss = (weight * found[0]).sum()
    found[1].mul_(2)
    loss.backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, found[0])


@pytest.mark.parametrize(
    "name", ["centers_2d", "depths", "bboxes", "bboxes_3d", "labels_3d", "attr_labels"]
)
def test_each_tensor_on_another_device_is_named(name: str) -> None:
    arguments = one_point(attr_labels=torch.tensor([1, 2]))
    arguments[name] = arguments[name].to("meta")
    with pytest.raises(
        ValueError, match=rf"^{name} is on meta and .* cpu: pass {name}.to\('cpu'\)"
    ):
        ops.fcos3d_targets(**arguments)


@pytest.mark.parametrize(
    ("changed", "kind", "text"),
    [
        ({"points": []}, ValueError, "points is empty"),
        ({"points": [[0, 0]]}, TypeError, r"points\[0\] is a list"),
        ({"points": [torch.zeros(1, 3)]}, ValueError, r"points\[0\] has shape \(1, 3\)"),
        ({"centers_2d": torch.zeros(3, 2)}, ValueError, r"centers_2d has .* shape \(2, 2\)"),
        ({"bboxes_3d": torch.zeros(2, 6)}, ValueError, "bboxes_3d has 6 columns: pass 7"),
        ({"depths": torch.zeros(2).long()}, TypeError, r"depths .* pass depths.float\(\)"),
        ({"labels_3d": torch.zeros(2)}, TypeError, r"labels_3d .* pass labels_3d.long\(\)"),
        ({"offsets": []}, ValueError, "offsets is empty"),
        ({"offsets": [1, 2]}, ValueError, "offsets starts with 1"),
        ({"offsets": [0, 2, 1, 2]}, ValueError, "offsets falls from 2 to 1 at 2"),
        ({"offsets": [0, 3]}, ValueError, "offsets ends with 3, but labels_3d has 2 rows"),
        ({"strides": [8, 16]}, ValueError, "strides has 2 items, and points has 1"),
        ({"strides": [0]}, ValueError, r"strides\[0\] is 0: .* above 0"),
        ({"strides": [1e8]}, ValueError, "a centre region reaches 1.5e"),
        ({"strides": [1e-60]}, ValueError, r"strides\[0\] is 1e-60, which is 0 in float32"),
        ({"strides": [1e60]}, ValueError, r"strides\[0\] is 1e[+]60, which is inf in float32"),
        ({"strides": ["wide"]}, TypeError, r"strides\[0\] is 'wide': pass a number"),
        (
            {"strides": [1e-30], "center_sample_radius": 1e-30},
            ValueError,
            r"strides\[0\] times center_sample_radius is .*, which is 0 in float32",
        ),
        ({"regress_ranges": [(0, 1, 2)]}, ValueError, r"regress_ranges\[0\] is \(0, 1, 2\): pass"),
        ({"regress_ranges": [48]}, ValueError, r"regress_ranges\[0\] is 48: pass the least"),
        ({"regress_ranges": [(NAN, 48)]}, ValueError, r"regress_ranges\[0\] is \(nan, 48\)"),
        ({"regress_ranges": [(96, 48)]}, ValueError, r"\(96, 48\): .* such as \(48, 96\)"),
        ({"regress_ranges": [(None, 48)]}, TypeError, r"ranges\[0\]\[0\] is None: pass a number"),
        ({"background_label": 2**63}, ValueError, "background_label is 9223372036854775808: pass"),
        ({"attr_background_label": 9.5}, TypeError, "attr_background_label is 9.5: pass a whole"),
        ({"centerness_alpha": 1e60}, ValueError, "centerness_alpha is 1e.60, which is inf in"),
        (
            {"points": [torch.zeros(1, 2).expand(2**31, 2)]},
            ValueError,
            r"points\[0\] has 2147483648 rows: pass at most 2147483647 a call",
        ),
        ({"regress_ranges": []}, ValueError, "regress_ranges has 0 items"),
        ({"center_sample_radius": NAN}, ValueError, "center_sample_radius is nan"),
        ({"centerness_alpha": -1}, ValueError, "centerness_alpha is -1"),
    ],
)
def test_wrong_arguments_are_named(changed: dict[str, Any], kind: type, text: str) -> None:
    with pytest.raises(kind, match=text):
        ops.fcos3d_targets(**one_point(**changed))
