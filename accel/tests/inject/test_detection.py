# SPDX-License-Identifier: Apache-2.0
"""SimOTA's assignment and FCOS3D's targets are the operators' where everything about a call is
known, and the library's where anything is not.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import fcos3d_fake
import pytest
import simota_fake
import swin_stand_in
import torch
from fcos3d_fake import Boxes3D, FCOSMono3DHead
from paceline import accelerate, ops
from paceline._core import explain, reports
from paceline._inject import detection, operators, swin
from paceline.ops import _native
from simota_fake import InstanceData, SimOTAAssigner

Tensor = torch.Tensor
pytestmark = pytest.mark.skipif(bool(_native.why_unavailable()), reason="no library")


@pytest.fixture(autouse=True)
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    for fake, kind in ((simota_fake, SimOTAAssigner), (fcos3d_fake, FCOSMono3DHead)):
        module = ModuleType(fake.MODULE)
        setattr(module, kind.__name__, kind)
        monkeypatch.setitem(sys.modules, fake.MODULE, module)


@pytest.fixture
def patched() -> Iterator[None]:
    with swin_stand_in.job(detection.install):
        yield


class GIoU(simota_fake.BboxOverlaps2D):
    pass


def scene(seed: int, known: int = 5, far: float = 0.0) -> Any:
    """Predictions of an image of 64 × 64, and ground truths that lie `far` away from it."""
    draw = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(torch.arange(8), torch.arange(8), indexing="ij")
    priors = torch.stack((columns, rows, columns, rows), -1).reshape(-1, 4) * 8.0 + 4
    priors[:, 2:] = 8
    middles = priors[:, :2] + torch.randn(64, 2, generator=draw) * 3
    sides = torch.rand(64, 2, generator=draw) * 20 + 4
    corner = torch.rand(known, 2, generator=draw) * 50
    predictions = InstanceData(
        bboxes=torch.cat((middles - sides, middles + sides), 1),
        scores=torch.rand(64, 3, generator=draw),
        priors=priors,
    )
    ends = corner + torch.rand(known, 2, generator=draw) * 30 + 3
    truths = InstanceData(
        bboxes=torch.cat((corner, ends), 1) + far,
        labels=torch.randint(3, (known,), generator=draw),
    )
    return predictions, truths


def objects(seed: int, known: int, **more: Any) -> Any:
    draw = torch.Generator().manual_seed(seed)
    centers = torch.rand(known, 2, generator=draw) * 128
    half = torch.rand(known, 2, generator=draw) * 40 + 2
    labels = torch.randint(10, (known,), generator=draw)
    solid = InstanceData(
        bboxes_3d=Boxes3D(torch.randn(known, 9, generator=draw)),
        labels_3d=labels,
        centers_2d=centers,
        depths=torch.rand(known, generator=draw) * 50,
        **more,
    )
    return solid, InstanceData(
        bboxes=torch.cat((centers - half, centers + half), 1), labels=labels.clone()
    )


def batch(*counts: int) -> Any:
    points = []
    for stride in (8, 16):
        side = torch.arange(128 // stride) * float(stride) + stride // 2
        rows, columns = torch.meshgrid(side, side, indexing="ij")
        points.append(torch.stack((columns.reshape(-1), rows.reshape(-1)), -1))
    pairs = [objects(i, count) for i, count in enumerate(counts)]
    return points, [each[0] for each in pairs], [each[1] for each in pairs]


def said_of(kind: type) -> dict[str, Any]:
    seen = reports.OPERATORS.status().seen
    return next(each for each in seen if each["name"].endswith(kind.__name__))


def assert_left(kind: type, reason: str, function: Any, *args: Any, **kwargs: Any) -> None:
    before = said_of(kind)
    function(*args, **kwargs)
    after = said_of(kind)
    assert reason in after["reason"], after["reason"]
    assert (after["computed"], after["left"]) == (before["computed"], before["left"] + 1)


def assert_same(ours: Any, theirs: Any) -> None:
    assert type(ours) is type(theirs) and ours.num_gts == theirs.num_gts
    for name in ("gt_inds", "labels"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    torch.testing.assert_close(ours.max_overlaps, theirs.max_overlaps)
    assert torch.equal(ours.max_overlaps == -1e5, theirs.max_overlaps == -1e5)


@pytest.mark.parametrize("far", [0.0, 1000.0])
def test_simota_is_the_original(far: float) -> None:
    """With ground truths far away no prior is a candidate, and all overlaps are 0."""
    scenes = [scene(seed, 1 + seed % 7, far) for seed in range(20)]
    assigner = SimOTAAssigner(center_radius=1.5, candidate_topk=6)
    theirs: list[Any] = [assigner.assign(*each) for each in scenes]
    with swin_stand_in.job(detection.install):
        ours: list[Any] = [assigner.assign(*each) for each in scenes]
        assert said_of(SimOTAAssigner)["computed"] == 20
    for one, other in zip(ours, theirs):
        assert_same(one, other)
    assert all(bool((each.gt_inds > 0).any()) == (far == 0.0) for each in ours)
    assert all(bool((each.max_overlaps == 0).all()) == (far > 0.0) for each in ours)


def test_simota_keywords_and_labels_of_32_bits(patched: None) -> None:
    predictions, truths = scene(1)
    expected = SimOTAAssigner().assign(predictions, truths)
    truths.labels = truths.labels.int()
    given = {"pred_instances": predictions, "gt_instances": truths, "gt_instances_ignore": None}
    assert_same(SimOTAAssigner().assign(**given, more=1), expected)
    assert said_of(SimOTAAssigner)["computed"] == 2
    with pytest.raises(TypeError):
        SimOTAAssigner().assign(predictions, truths, pred_instances=predictions)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_simota_in_mixed_precision(patched: None, dtype: torch.dtype) -> None:
    predictions, truths = scene(1)
    predictions.scores = predictions.scores.to(dtype)
    predictions.priors = predictions.priors.to(dtype)
    expected = inspect.unwrap(SimOTAAssigner.assign)(SimOTAAssigner(), predictions, truths)
    found = SimOTAAssigner().assign(predictions, truths)
    assert_same(found, expected)
    assert found.max_overlaps.dtype is torch.float32
    assert said_of(SimOTAAssigner)["computed"] == 1


def test_simota_that_is_left(patched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Radius(SimOTAAssigner):
        def get_in_gt_and_in_center_info(self, priors: Tensor, gt_bboxes: Tensor) -> Any:
            return super().get_in_gt_and_in_center_info(priors, gt_bboxes)

    class Calls(SimOTAAssigner):
        def assign(self, *args: Any, **kwargs: Any) -> Any:
            return super().assign(*args, **kwargs)

    def left(reason: str, assigner: Any, **changes: Any) -> None:
        predictions, truths = scene(1)
        for name, value in changes.items():
            where, _, field = name.partition("_")
            setattr(predictions if where == "pred" else truths, field, value)
        assert_left(SimOTAAssigner, reason, assigner.assign, predictions, truths)

    plain = SimOTAAssigner()
    left("a subclass with a get_in_gt_and_in_center_info of its own", Radius())
    left("a subclass with a assign of its own", Calls())
    left("overlaps of GIoU", SimOTAAssigner(iou_calculator=GIoU()))
    left("overlaps in fp16", SimOTAAssigner(iou_calculator=simota_fake.BboxOverlaps2D(1.0, "fp16")))
    predictions, truths = scene(1)
    left("a tensor of float64", plain, pred_scores=predictions.scores.double())
    left("a tensor of bfloat16", plain, pred_bboxes=predictions.bboxes.bfloat16())
    left("a tensor with a gradient", plain, pred_bboxes=predictions.bboxes.requires_grad_())
    left("a Parameter in place", plain, gt_bboxes=torch.nn.Parameter(truths.bboxes))
    left("no ground truths", plain, gt_bboxes=torch.zeros(0, 4), gt_labels=truths.labels[:0])
    other = SimOTAAssigner()
    other.soft = True  # type: ignore[attr-defined]
    left("settings that this release", other)
    own = SimOTAAssigner()
    own.dynamic_k_matching = plain.dynamic_k_matching  # type: ignore[method-assign]
    left("a method that the program has replaced", own)
    with monkeypatch.context() as patch:
        patch.setattr(simota_fake, "INF", 1000.0)
        left("constants that this release", plain)
    with monkeypatch.context() as patch:
        helper = SimOTAAssigner.dynamic_k_matching
        patch.setattr(SimOTAAssigner, "dynamic_k_matching", lambda *args: helper(*args))
        left("a method that the program has replaced", plain)
    assert said_of(SimOTAAssigner)["computed"] == 0


def test_a_refused_call_is_the_librarys(patched: None, capfd: pytest.CaptureFixture[str]) -> None:
    predictions, truths = scene(1)
    predictions.scores = predictions.scores + 2
    for _ in range(2):
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            SimOTAAssigner().assign(predictions, truths)
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 1 and ".SimOTAAssigner computes by itself: the operator ref" in said[0]
    assert said_of(SimOTAAssigner)["left"] == 2


def test_memory_errors_are_the_programs(patched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise MemoryError("no memory")

    monkeypatch.setattr(ops, "simota_assign", full)
    with pytest.raises(MemoryError, match="no memory"):
        SimOTAAssigner().assign(*scene(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("has_attributes", [True, False])
def test_fcos3d_is_the_original(dtype: torch.dtype, has_attributes: bool) -> None:
    def made() -> Any:
        points, solid, flat = batch(4, 0, 7)
        for each in solid if has_attributes else []:
            each.attr_labels = each.labels_3d % 8
        solid[2].bboxes_3d = solid[2].bboxes_3d.tensor  # both kinds are allowed
        return [each.to(dtype) for each in points], solid, flat

    head = FCOSMono3DHead()
    before, after = made(), made()
    theirs = head.get_targets(*before)
    with swin_stand_in.job(detection.install):
        ours = head.get_targets(*after)
        assert said_of(FCOSMono3DHead)["computed"] == 1
    assert type(ours) is tuple and len(ours) == 4
    found: list[Any] = [labels != head.background_label for labels in theirs[0]]
    assert sum(int(each.sum()) for each in found) > 10
    for level, matched in enumerate(found):
        assert torch.equal(ours[0][level], theirs[0][level])
        assert torch.equal(ours[3][level], theirs[3][level])
        assert torch.equal(ours[1][level][matched], theirs[1][level][matched])
        torch.testing.assert_close(ours[2][level][matched], theirs[2][level][matched])
        assert ours[1][level].shape == theirs[1][level].shape
    for one, other in zip(after[1], before[1]):
        boxes = [getattr(each.bboxes_3d, "tensor", each.bboxes_3d) for each in (one, other)]
        assert torch.equal(*boxes), "the local yaw is written into the program's boxes"
        assert torch.equal(one.attr_labels, other.attr_labels)


@pytest.mark.skipif(not hasattr(torch, "_disable_dynamo"), reason="PyTorch before 2.1")
def test_within_a_compiled_loss(patched: None) -> None:
    """A call that is left to the library runs uncompiled, too."""
    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def loss(assigner: Any, scores: Tensor) -> Tensor:
        predictions.scores = scores.sigmoid()
        return assigner.assign(predictions, truths).max_overlaps * scores[:, 0]

    predictions, truths = scene(1)
    scores = predictions.scores
    compiled = torch.compile(loss, backend=backend)
    for count, assigner in ((2, SimOTAAssigner()), (0, SimOTAAssigner(iou_calculator=GIoU()))):
        torch._dynamo.reset()
        graphs.clear()
        before = said_of(SimOTAAssigner)["computed"]
        assert torch.equal(compiled(assigner, scores), loss(assigner, scores))
        assert said_of(SimOTAAssigner)["computed"] == before + count
        assert len(graphs) == 2, [graph.code for graph in graphs]


def test_fcos3d_that_is_left(patched: None) -> None:
    class Single(FCOSMono3DHead):
        def _get_target_single(self, *args: Any) -> Any:
            return super()._get_target_single(*args)

    class Loss(FCOSMono3DHead):
        def loss_by_feat(self) -> None:
            pass

    def left(reason: str, head: Any, *args: Any) -> None:
        assert_left(FCOSMono3DHead, reason, head.get_targets, *(args or batch(2, 3)))

    left("a subclass with a _get_target_single of its own", Single())
    left("a subclass with a loss_by_feat of its own", Loss())
    left("no centre regions", FCOSMono3DHead(center_sampling=False))
    left("0 as the label of background", FCOSMono3DHead(background_label=0))
    left("other numbers of levels", FCOSMono3DHead(strides=(8, 16, 32)))
    left("no ground truths", FCOSMono3DHead(), *batch(0, 0))
    points, solid, flat = batch(3)
    left("share their ground truths", FCOSMono3DHead(), points, solid * 2, flat * 2)
    points, solid, flat = batch(3)
    solid[0].depths = solid[0].depths.double()
    left("a tensor of float64", FCOSMono3DHead(), points, solid, flat)
    points, solid, flat = batch(3)
    solid[0].centers_2d.requires_grad_()
    left("a tensor with a gradient", FCOSMono3DHead(), points, solid, flat)
    assert said_of(FCOSMono3DHead)["computed"] == 0


def test_one_status_for_all_operators() -> None:
    def install() -> None:
        swin.install()
        detection.install()

    original = SimOTAAssigner.assign
    with swin_stand_in.job(install):
        assert "fused operators: on (no call yet); " in explain.explain()
        assert SimOTAAssigner.assign is not original
        SimOTAAssigner().assign(*scene(1))
        FCOSMono3DHead(center_sampling=False).get_targets(*batch(2))
        told = explain.explain()
        assert f"fused operators: on for {simota_fake.MODULE}.SimOTAAssigner: 1 calls;" in told
        assert f"  {fcos3d_fake.MODULE}.FCOSMono3DHead: 1 by the library (no centre" in told
        swin.uninstall()
        assert SimOTAAssigner.assign is original and not operators.classes
        assert reports.OPERATORS.status().switch == "off (uninstalled)"


def test_accelerate_replaces_the_methods_of_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "begin_trial", None)
    original, model = SimOTAAssigner.assign, torch.nn.Linear(1, 1)
    with swin_stand_in.job(lambda: None, PACELINE_OPERATORS=""):
        accelerate(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), fused=False)
        assert SimOTAAssigner.assign is original, "no model was given"
        accelerate(model)
        ours = SimOTAAssigner.assign
        assert inspect.unwrap(ours) is original
        accelerate(model)
        assert SimOTAAssigner.assign is ours, "they are replaced once"
        SimOTAAssigner().assign(*scene(1))
        assert said_of(SimOTAAssigner)["computed"] == 1

        accelerate(model, numerics="bitwise")
        assert SimOTAAssigner.assign is original
        accelerate(model)
        assert SimOTAAssigner.assign is original, "the first model stays the same to the bit"
        assert reports.OPERATORS.status().switch.startswith("off (numerics is Bitwise, ")


def test_accelerate_does_what_the_job_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "begin_trial", None)
    original = SimOTAAssigner.assign
    with swin_stand_in.job(lambda: None, PACELINE_OPERATORS="Disabled"):
        accelerate(torch.nn.Linear(1, 1))
        assert SimOTAAssigner.assign is original
        assert reports.OPERATORS.status().switch == "off (PACELINE_OPERATORS is Disabled)"
    with swin_stand_in.job(detection.install):
        ours = SimOTAAssigner.assign
        accelerate(torch.nn.Linear(1, 1))
        assert SimOTAAssigner.assign is ours, "the job has replaced it"


@pytest.mark.parametrize(
    "variables", [{"PACELINE_OPERATORS": "Disabled"}, {"PACELINE_NUMERICS": "Bitwise"}]
)
def test_not_asked_for(variables: dict[str, str]) -> None:
    original = SimOTAAssigner.assign
    with swin_stand_in.job(detection.install, **variables):
        assert SimOTAAssigner.assign is original
        assert reports.OPERATORS.status().switch.startswith("off (PACELINE_")


def test_a_signature_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    class Older(SimOTAAssigner):
        def assign(self, pred_scores: Tensor, priors: Tensor) -> Any:  # type: ignore[override]
            return pred_scores

    monkeypatch.setattr(sys.modules[simota_fake.MODULE], "SimOTAAssigner", Older)
    original = Older.assign
    with swin_stand_in.job(detection.install):
        assert Older.assign is original
        assert (
            said_of(SimOTAAssigner)["reason"] == "its assign has the arguments pred_scores, priors"
        )
