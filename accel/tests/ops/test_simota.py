# SPDX-License-Identifier: Apache-2.0
"""SimOTA against the original algorithm."""

from __future__ import annotations

from typing import Any

import originals
import pytest
import scenes
import torch
from paceline import ops
from paceline.ops import _native

Tensor = torch.Tensor
INF, NAN = float("inf"), float("nan")


def assigned(scene: scenes.Simota, **settings: Any) -> ops.SimOTAAssignment:
    return ops.simota_assign(
        scene.boxes,
        scene.scores,
        scene.priors,
        scene.offsets(),
        torch.cat(scene.truths),
        torch.cat(scene.labels),
        **settings,
    )


def original(
    scene: scenes.Simota, image: int, dtype: torch.dtype, **settings: Any
) -> originals.Assigned:
    if "center_radius" in settings:
        settings["radius"] = settings.pop("center_radius")
    return originals.simota_image(
        scene.boxes[image].to(dtype),
        scene.scores[image].to(dtype),
        scene.priors.to(dtype),
        scene.truths[image].to(dtype),
        scene.labels[image],
        **settings,
    )


def check(scene: scenes.Simota, **settings: Any) -> int:
    """Compares with the original in float64, and returns how many priors are assigned."""
    found = assigned(scene, **settings)
    for i, labels in enumerate(scene.labels):
        wanted = original(scene, i, torch.float64, **settings)
        own = wanted.winners >= 0
        assert torch.equal(found.gt_index[i], wanted.winners)
        assert torch.equal(found.labels[i][own], labels[wanted.winners[own]])
        assert (found.labels[i][~own] == -1).all()
        torch.testing.assert_close(
            found.overlaps[i].double(), wanted.overlaps, rtol=1e-6, atol=1e-7, equal_nan=True
        )
    return int(found.gt_index.ge(0).sum())


def test_ten_thousand_scenes_are_assigned_as_the_original_does() -> None:
    torch.manual_seed(1)
    assert sum(check(scenes.simota(20)) for _ in range(500)) > 10_000


@pytest.mark.parametrize("plain", [False, True])
def test_another_least_overlap(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair without an overlap costs 6.9 more with 1e-8 than with 1e-7."""
    if plain:
        monkeypatch.setattr(_native, "takes", lambda *_: False)
    torch.manual_seed(7)
    count = 30 if plain else 200
    assert sum(check(scenes.simota(10), least_overlap=1e-8) for _ in range(count)) > 500
    # The first prior has an IoU of 8e-9, the second one has none but the better score. With the
    # larger number the score decides, with the smaller one the overlap.
    boxes = few()["boxes"].clone()
    boxes[0, 0] = torch.tensor([15.0, 8 - 2e-6, 32.0, 16.0])
    boxes[0, 1:] = torch.tensor([100.0, 0.0, 108.0, 8.0])
    scores = torch.full((1, 4, 2), 0.5)
    scores[0, 1, 1] = 0.9
    assert index_of(boxes=boxes, scores=scores) == [-1, 0, -1, -1]
    assert index_of(boxes=boxes, scores=scores, least_overlap=1e-9) == [0, -1, -1, -1]


def test_regions_of_centres_only() -> None:
    torch.manual_seed(8)
    settings: dict[str, Any] = {"center_only": True, "center_radius": 1.5, "least_overlap": 1e-8}
    assert sum(check(scenes.simota(10), **settings) for _ in range(300)) > 3000
    # The ground truth lies in the box of no prior, and in the centre region of the first two.
    truth = torch.tensor([[7.0, 0.0, 9.0, 8.0]])
    right = truth.repeat(1, 4, 1)
    assert index_of(gt_boxes=truth, boxes=right, **settings) == [0, 0, -1, -1]
    # The second prior has the better score. It lies in the centre region, and not in the box.
    wide, scores = torch.tensor([[0.0, 0.0, 9.0, 8.0]]), torch.full((1, 4, 2), 0.5)
    boxes = torch.full((1, 4, 4), 500.0)
    boxes[0, :2] = torch.tensor([0.0, 0.0, 9.0, 6.0])
    scores[0, 1, 1] = 0.9
    arguments = {"gt_boxes": wide, "boxes": boxes, "scores": scores}
    assert index_of(**arguments) == [0, -1, -1, -1]
    assert index_of(**arguments, center_only=True) == [-1, 0, -1, -1]


def test_plain_torch_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "takes", lambda *_: False)
    torch.manual_seed(2)
    assert sum(check(scenes.simota(10)) for _ in range(30)) > 500


def test_the_original_in_float32_differs_only_where_its_rounding_decides() -> None:
    """Large scenes without equal costs: there float32 has nothing to hide."""
    torch.manual_seed(3)
    places = [torch.cat((scenes.grid(128 // s, 128 // s, s),) * 2, 1) for s in (8, 16, 32)]
    priors = torch.cat(places)
    priors[:, 2:] = torch.cat([torch.full((len(one), 2), s) for one, s in zip(places, (8, 16, 32))])
    reach = priors[:, 2:] * (1 + 2 * torch.rand(4, len(priors), 2))
    boxes = torch.cat((priors[:, :2] - reach, priors[:, :2] + reach), 2)
    truths = [torch.tensor([[10.0, 10.0, 90.0, 90.0], [40.0, 40.0, 120.0, 125.0]])] * 4
    scene = scenes.Simota(
        boxes, torch.rand(4, len(priors), 80), priors, truths, [torch.tensor([3, 70])] * 4
    )
    assert check(scene) > 8
    found = assigned(scene)
    for i in range(4):
        assert torch.equal(found.gt_index[i], original(scene, i, torch.float32).winners)


def rounded_costs(scores: Tensor, labels: Tensor) -> Tensor:
    """As the original has them of scores of 16 bits: computed in float32, kept in 16 bits."""
    return originals.class_costs(scores.float(), labels).to(scores.dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits_differ_from_the_original_only_where_its_rounding_decides(
    dtype: torch.dtype,
) -> None:
    torch.manual_seed(6)
    places = [torch.cat((scenes.grid(320 // s, 320 // s, s),) * 2, 1) for s in (8, 16, 32)]
    priors = torch.cat(places)
    priors[:, 2:] = torch.cat([torch.full((len(one), 2), s) for one, s in zip(places, (8, 16, 32))])
    corners = torch.rand(9, 2) * 240
    truths = torch.cat((corners, corners + torch.rand(9, 2) * 70 + 10), 1)
    labels = torch.arange(9)
    matched = different = 0
    for _ in range(20):
        reach = priors[:, 2:] * torch.rand(len(priors), 2) * 4
        boxes = torch.cat((priors[:, :2] - reach, priors[:, :2] + reach), 1)
        scores = torch.randn(len(priors), 80).sub(4).sigmoid().to(dtype)
        found = ops.simota_assign(
            boxes[None], scores[None], priors.to(dtype), [0, 9], truths, labels
        )
        wanted = originals.simota_image(
            boxes, scores, priors.to(dtype), truths, labels, costs_of=rounded_costs
        )
        matched += int(wanted.winners.ge(0).sum())
        different += int(wanted.winners.ne(found.gt_index[0]).sum())
        exact = originals.simota_image(
            boxes.double(), scores.double(), priors.double(), truths.double(), labels
        )
        assert torch.equal(found.gt_index[0], exact.winners)
    assert matched > 500
    assert different <= matched * (0.01 if dtype is torch.float16 else 0.04), (different, matched)


def test_number_of_threads_and_float64_change_nothing() -> None:
    torch.manual_seed(4)
    scene = scenes.simota(9)
    once = assigned(scene)
    torch.set_num_threads(3)
    try:
        again = assigned(scene)
    finally:
        torch.set_num_threads(1)
    wide = assigned(scene._replace(boxes=scene.boxes.double()))
    assert wide.overlaps.dtype is torch.float64
    for one, other, third in zip(once, again, wide):
        assert torch.equal(one, other)
        torch.testing.assert_close(one, third.to(one.dtype))


def few(**changed: Any) -> dict[str, Any]:
    """Four priors in a row, and a ground truth over the first two."""
    x = torch.tensor([4.0, 12.0, 20.0, 28.0])
    y = torch.full((4,), 4.0)
    return {
        "boxes": torch.stack((x - 4, y - 4, x + 4, y + 4), 1)[None],
        "scores": torch.full((1, 4, 2), 0.5),
        "priors": torch.stack((x, y, torch.full((4,), 8.0), torch.full((4,), 8.0)), 1),
        "offsets": [0, 1],
        "gt_boxes": torch.tensor([[0.0, 0.0, 16.0, 8.0]]),
        "gt_labels": torch.tensor([1]),
        **changed,
    }


def index_of(**changed: Any) -> list[int]:
    return ops.simota_assign(**few(**changed)).gt_index.flatten().tolist()


@pytest.mark.parametrize("plain", [False, True])
def test_edges(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plain:
        monkeypatch.setattr(_native, "takes", lambda *_: False)
    # Each overlaps by one half: together one prior, and the first of two equal ones.
    assert index_of() == [0, -1, -1, -1]
    sure = torch.full((1, 4, 2), 0.5)
    sure[0, 1, 1] = 0.75
    assert index_of(scores=sure) == [-1, 0, -1, -1]
    # Two predictions without a fault: both.
    exact = few()["boxes"].clone()
    exact[0, :2] = few()["gt_boxes"]
    assert index_of(boxes=exact) == [0, 0, -1, -1]
    assert index_of(boxes=exact, candidate_topk=1) == [0, -1, -1, -1]
    assert index_of(boxes=exact, candidate_topk=1000) == [0, 0, -1, -1]
    # Three are wanted and two lie in the box: the third comes from the centre region.
    exact[0, 2] = few()["gt_boxes"]
    assert index_of(boxes=exact) == [0, 0, 0, -1]
    # Two ground truths that cost the same: the first.
    twice = {"gt_boxes": few()["gt_boxes"].repeat(2, 1), "gt_labels": torch.tensor([1, 1])}
    assert index_of(**twice, offsets=[0, 2]) == [0, -1, -1, -1]
    # Scores of 0 and 1 have a cost of 100 at most, not an infinite one.
    hard = torch.tensor([0.0, 1.0]).repeat(1, 4, 1)
    assert index_of(scores=hard) == index_of(scores=1 - hard) == [0, -1, -1, -1]
    assert index_of(gt_boxes=few()["gt_boxes"] + 500) == [-1] * 4
    assert index_of(gt_boxes=torch.full((1, 4), NAN)) == [-1] * 4
    # A ground truth without an area takes no prior of a good one, wherever it stands.
    for column in range(4):
        for i in (0, 1):
            two = few()["gt_boxes"].repeat(2, 1)
            two[i, column] = NAN
            both = {"gt_boxes": two, "gt_labels": torch.tensor([1, 1]), "offsets": [0, 2]}
            assert index_of(**both, boxes=exact) == [1 - i] * 3 + [-1]
    none = torch.tensor([[NAN, NAN, NAN, NAN], [5.0, -INF, 5.0, INF], [0.0, 0.0, 16.0, 8.0]])
    three = {"gt_labels": torch.tensor([1, 0, 1]), "offsets": [0, 3]}
    assert index_of(gt_boxes=none, **three, boxes=exact) == [2, 2, 2, -1]


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_predictions_that_are_no_numbers(bad: float) -> None:
    torch.manual_seed(5)
    for column in range(4):
        scene = scenes.simota(6)
        scene.boxes[:, ::3, column] = bad
        check(scene)


@pytest.mark.parametrize("plain", [False, True])
def test_shapes_of_nothing(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plain:
        monkeypatch.setattr(_native, "takes", lambda *_: False)
    none = {"gt_boxes": torch.zeros(0, 4), "gt_labels": torch.zeros(0, dtype=torch.int64)}
    assert index_of(**none, offsets=[0, 0]) == [-1] * 4
    images = {"boxes": torch.zeros(0, 4, 4), "scores": torch.zeros(0, 4, 2)}
    assert ops.simota_assign(**few(**none, **images, offsets=[0])).labels.shape == (0, 4)
    priors = {
        "boxes": torch.zeros(1, 0, 4),
        "scores": torch.zeros(1, 0, 2),
        "priors": torch.zeros(0, 4),
    }
    assert ops.simota_assign(**few(**priors)).overlaps.shape == (1, 0)


def test_other_layouts_and_dtypes() -> None:
    arguments = few()
    scores = torch.rand(2, 4, 1).transpose(0, 2).requires_grad_()
    half = ops.simota_assign(
        **{**arguments, "scores": scores.half(), "boxes": arguments["boxes"].bfloat16()}
    )
    whole = ops.simota_assign(**{**arguments, "scores": scores.half().float()})
    assert torch.equal(half.gt_index, whole.gt_index)
    assert half.overlaps.dtype is torch.float32
    assert not half.overlaps.requires_grad


@pytest.mark.parametrize("plain", [False, True])
def test_defaults_of_torch_change_nothing(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plain:
        monkeypatch.setattr(_native, "takes", lambda *_: False)
    # Two are wanted and one lies in the box, so that the costs of those outside matter.
    truth = torch.tensor([[0.0, 0.0, 8.0, 8.0]])
    scores = torch.full((1, 4, 2), 0.5)
    scores[0, 2, 1] = 0.75
    arguments = few(gt_boxes=truth, boxes=truth.repeat(1, 4, 1), scores=scores)
    arguments["candidate_topk"] = 2
    wanted = ops.simota_assign(**arguments)
    assert wanted.gt_index.tolist() == [[0, -1, 0, -1]]
    with scenes.other_defaults():
        found = ops.simota_assign(**arguments)
    for one, other in zip(wanted, found):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


def test_subclasses_of_tensors_are_computed_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "call", None)
    for name in ("boxes", "scores", "priors", "gt_boxes", "gt_labels"):
        assert index_of(**{name: few()[name].as_subclass(scenes.Own)}) == [0, -1, -1, -1]


@pytest.mark.parametrize("plain", [False, True])
def test_a_score_that_is_no_probability_is_named(
    plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plain:
        monkeypatch.setattr(_native, "takes", lambda *_: False)
    for bad in (-0.1, 1.5, NAN):
        scores = torch.full((1, 4, 2), 0.5)
        scores[0, 1, 0] = bad
        with pytest.raises(ValueError, match=rf"scores\[0, 1, 0\] is {bad:g}: pass prob"):
            index_of(scores=scores)
    far = torch.full((1, 4, 2), 0.5)
    far[0, 3] = 7.0  # of a prior that no ground truth reaches
    assert index_of(scores=far, center_radius=1.0) == [0, -1, -1, -1]


@pytest.mark.parametrize(
    ("changed", "kind", "text"),
    [
        ({"boxes": None}, TypeError, "boxes is a NoneType: pass a tensor of shape"),
        ({"boxes": torch.zeros(4, 4)}, ValueError, r"boxes has shape \(4, 4\)"),
        ({"boxes": torch.zeros(1, 4, 4).long()}, TypeError, r"boxes .* pass boxes.float\(\)"),
        ({"scores": torch.zeros(1, 3, 2)}, ValueError, r"scores .* shape \(1, 4, classes\)"),
        ({"priors": torch.zeros(4, 2)}, ValueError, r"priors .* shape \(4, 4\)"),
        ({"gt_boxes": torch.zeros(2, 4)}, ValueError, r"gt_boxes .* shape \(1, 4\)"),
        ({"gt_labels": torch.tensor([2])}, ValueError, "gt_labels has 2, and scores has 2 classes"),
        ({"gt_labels": torch.tensor([-1])}, ValueError, "gt_labels has -1"),
        ({"offsets": [0, 1, 1]}, ValueError, "offsets has 3 numbers for 1 images of boxes: pass 2"),
        ({"center_radius": -1.0}, ValueError, "center_radius is -1"),
        ({"center_radius": "wide"}, TypeError, "center_radius is 'wide': pass a number"),
        ({"candidate_topk": 0}, ValueError, "candidate_topk is 0: .* from 1 to 2147483647$"),
        ({"candidate_topk": 2**31}, ValueError, "candidate_topk is 2147483648: pass a whole"),
        ({"candidate_topk": 2.5}, TypeError, "candidate_topk is 2.5: pass a whole number from 1"),
        ({"scores": torch.zeros(1, 4, 0)}, ValueError, "scores has 0 classes, .* at least one"),
        (
            {"boxes": torch.zeros(1, 1, 4).expand(1, 2**31, 4)},
            ValueError,
            "boxes has 2147483648 priors: pass at most 2147483647 a call",
        ),
        (
            {"boxes": torch.zeros(1, 1, 4).expand(2**31, 1, 4)},
            ValueError,
            "boxes has 2147483648 images: pass at most",
        ),
        ({"offsets": [0, 1.0]}, TypeError, r"offsets\[1\] is 1.0: pass a whole number from 0"),
        ({"offsets": 1}, TypeError, "offsets is a int: pass 0 and the running sums"),
        ({"iou_weight": INF}, ValueError, "iou_weight is inf"),
        ({"cls_weight": NAN}, ValueError, "cls_weight is nan"),
        ({"least_overlap": 0.0}, ValueError, "least_overlap is 0.0: .* above 0"),
    ],
)
def test_wrong_arguments_are_named(changed: dict[str, Any], kind: type, text: str) -> None:
    with pytest.raises(kind, match=text):
        ops.simota_assign(**few(**changed))
