# SPDX-License-Identifier: Apache-2.0
"""The assignment and the targets of detection libraries, told in terms of one operator.

A form says how to recognise a class, and when a call of its method is one that the operator can
make. What is returned, and what is written into the program's objects, are as the original has it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

Tensor = torch.Tensor
_YAW = 6
ASSIGNERS = "mmdet.models.task_modules.assigners"
INDICES = (torch.int64, torch.int32)
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass
class Call:
    """One call that the operator can make."""

    device: torch.device
    compute: Callable[[], Any]
    needs_kernels: bool = True  # else PyTorch's operations gain, too


@dataclass(frozen=True)
class Form:
    """How one library writes what an operator computes."""

    module: str
    owner: str  # the class
    method: str
    signature: tuple[str, ...]  # of the method
    helpers: tuple[str, ...]  # other methods that must be the library's own
    # Returns the call, or why it cannot be made. Its arguments: the object, then the names of the
    # method's arguments with their values, then the names that the library's own file defines.
    read: Callable[[Any, dict[str, Any], dict[str, Any]], Call | str]
    functions: tuple[str, ...] = ()  # of the library's own file, which the methods call
    # For a library that has its settings as numbers in its code: the releases whose code is known,
    # and the digests of that code (detection.py).
    release: str = ""
    digests: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.module}.{self.owner}"


def why_not_tensors(tensors: Iterable[Any], dtypes: tuple[torch.dtype, ...], of: Tensor) -> str:
    for each in tensors:
        if type(each) is not Tensor:
            return f"a {type(each).__name__} in place of a tensor"
        if each.dtype not in dtypes:
            return f"a tensor of {str(each.dtype).replace('torch.', '')}"
        if each.device != of.device:
            return "tensors on several devices"
        if each.requires_grad:
            return "a tensor with a gradient"
    return ""


def why_not_overlaps(calculator: Any) -> str:
    """Whether an assigner of mmdetection compares boxes by their plain overlap."""
    kind: Any = type(calculator)
    known = (f"{ASSIGNERS}.iou2d_calculator", "BboxOverlaps2D")
    if (kind.__module__, kind.__qualname__) != known or kind.__call__.__module__ != known[0]:
        return f"overlaps of {kind.__name__}"
    if vars(calculator).keys() != {"scale", "dtype"} or calculator.dtype is not None:
        return f"overlaps in {calculator.dtype}"
    overlaps = kind.__call__.__globals__["bbox_overlaps"]
    if overlaps.__module__ != "mmdet.structures.bbox.bbox_overlaps":
        return "overlaps that the program has replaced"
    return ""


# -- SimOTA of mmdetection
# ------------------------------------------------------------

_OUTSIDE = 100_000.0  # cost of a prior outside the region, and minus the overlap of background
_SETTINGS = ("center_radius", "candidate_topk", "iou_weight", "cls_weight")


def _why_not_assigner(assigner: Any, library: dict[str, Any]) -> str:
    if vars(assigner).keys() != {*_SETTINGS, "iou_calculator"}:
        return "settings that this release does not know"
    if (library["INF"], library["EPS"]) != (_OUTSIDE, 1e-7):
        return "constants that this release does not know"
    return why_not_overlaps(assigner.iou_calculator)


def _read_simota(assigner: Any, given: dict[str, Any], library: dict[str, Any]) -> Call | str:
    """The original has no look at ground truths to ignore, nor at other keywords.

    In mixed precision scores and priors have 16 bits: the head makes priors in the dtype of its
    outputs. Boxes have 32, since autocast computes exponentials so.
    """
    why = _why_not_assigner(assigner, library)
    if why:
        return why
    predictions, truths = given["pred_instances"], given["gt_instances"]
    boxes, scores, priors = predictions.bboxes, predictions.scores, predictions.priors
    gt_boxes, gt_labels = truths.bboxes, truths.labels
    why = why_not_tensors((boxes, gt_boxes), (torch.float32,), boxes)
    why = why or why_not_tensors((scores, priors), FLOATS, boxes)
    why = why or why_not_tensors((gt_labels,), INDICES, boxes)
    if why:
        return why
    count, known = boxes.shape[:1], gt_boxes.shape[:1]
    shapes = (boxes.shape, priors.shape, gt_boxes.shape, scores.shape[:1], gt_labels.shape)
    if shapes != ((*count, 4), (*count, 4), (*known, 4), count, known) or scores.dim() != 2:
        return "tensors of other shapes"
    if 0 in (*count, *known):
        return "no ground truths or no predictions"

    def compute() -> Any:
        from paceline.ops import simota_assign

        settings = {name: getattr(assigner, name) for name in _SETTINGS}
        found = simota_assign(
            boxes[None], scores[None], priors, [0, *known], gt_boxes, gt_labels, **settings
        )
        index = found.gt_index[0]
        background = index < 0
        # 0 where no prior of the image is a candidate. Else each ground truth has a prior.
        overlap = background.all().logical_not() * -_OUTSIDE + 0.0
        overlaps = torch.where(background, overlap, found.overlaps[0])
        return library["AssignResult"](known[0], index + 1, overlaps, labels=found.labels[0])

    return Call(boxes.device, compute)


# -- FCOS3D of mmdetection3d
# ------------------------------------------------------------


@dataclass
class _Picture:
    """The ground truths of one picture."""

    instances: Any
    centers: Tensor
    depths: Tensor
    bboxes: Tensor
    boxes_3d: Tensor
    labels: Tensor
    attributes: Tensor | None  # None: the head writes its own for background

    @property
    def floats(self) -> tuple[Tensor, ...]:
        return self.centers, self.depths, self.bboxes, self.boxes_3d


def _why_not_head(head: Any, points: Any, library: dict[str, Any]) -> str:
    if head.center_sampling is not True:
        return "no centre regions"
    if library["INF"] != 1e8:
        return "constants that this release does not know"
    # Only then are points without ground truth, whose targets differ, no positive ones.
    if head.background_label != head.num_classes:
        return f"{head.background_label} as the label of background"
    if not len(points) == len(head.regress_ranges) == len(head.strides):
        return "other numbers of levels, strides and ranges"
    return ""


def _picture(instances: Any, flat: Any, has_attributes: bool, columns: int) -> _Picture | str:
    boxes = instances.bboxes_3d
    picture = _Picture(
        instances,
        instances.centers_2d,
        instances.depths,
        flat.bboxes,
        boxes if isinstance(boxes, Tensor) else boxes.tensor,
        instances.labels_3d,
        instances.attr_labels if has_attributes else None,
    )
    count = len(instances)
    indices = [picture.labels, flat.labels]
    if picture.attributes is not None:
        indices.append(picture.attributes)
    why = why_not_tensors(picture.floats, (torch.float32,), picture.bboxes)
    why = why or why_not_tensors(indices, (torch.int64,), picture.bboxes)
    if why:
        return why
    shapes = [each.shape for each in (*picture.floats, *indices)]
    wanted = [(count, 2), (count,), (count, 4), (count, columns), *((count,) for _ in indices)]
    return "tensors of other shapes" if count and shapes != wanted else picture


def _read_fcos3d(head: Any, given: dict[str, Any], library: dict[str, Any]) -> Call | str:
    points, solid = given["points"], given["batch_gt_instances_3d"]
    flat = given["batch_gt_instances"]
    why = _why_not_head(head, points, library)
    if why:
        return why
    if not 0 < len(solid) == len(flat):
        return "other numbers of pictures"
    has_attributes = "attr_labels" in solid[0]  # the original asks the first one only
    pictures = []
    for pair in zip(solid, flat):
        picture = _picture(*pair, has_attributes, head.bbox_code_size)
        if isinstance(picture, str):
            return picture
        pictures.append(picture)
    boxes = pictures[0].bboxes
    dtype = points[0].dtype
    why = why_not_tensors(points, (dtype,), boxes)
    why = why or why_not_tensors([each.boxes_3d for each in pictures], (torch.float32,), boxes)
    if why:
        return why
    if dtype not in FLOATS:
        return f"points of {str(dtype).replace('torch.', '')}"
    full = [each for each in pictures if len(each.labels)]
    if not full:
        return "no ground truths"
    if len({each.boxes_3d.data_ptr() for each in full}) < len(full):
        return "pictures that share their ground truths"
    return Call(boxes.device, lambda: _fcos3d_targets(head, list(points), pictures, full))


def _fcos3d_targets(
    head: Any, points: list[Tensor], pictures: list[_Picture], full: list[_Picture]
) -> Any:
    from paceline.ops import FCOS3DHead, fcos3d_targets

    # The original compares with ranges in the type of the points.
    ranges = torch.tensor(head.regress_ranges, dtype=points[0].dtype, device="cpu").tolist()
    attributes = None
    if pictures[0].attributes is not None:
        attributes = torch.cat([each.attributes for each in full if each.attributes is not None])
    centers, depths, bboxes, boxes_3d = (
        torch.cat(tensors) for tensors in zip(*(each.floats for each in full))
    )
    targets = fcos3d_targets(
        points,
        [0, *itertools.accumulate(len(each.labels) for each in pictures)],
        centers,
        depths,
        bboxes,
        boxes_3d,
        torch.cat([each.labels for each in full]),
        attributes,
        head=FCOS3DHead(
            strides=head.strides,
            regress_ranges=ranges,
            center_sample_radius=head.center_sample_radius,
            centerness_alpha=head.centerness_alpha,
            background_label=head.background_label,
            attr_background_label=head.attr_background_label,
            norm_on_bbox=bool(head.norm_on_bbox),
        ),
    )
    # The program finds its ground truths as the original leaves them. Nothing can fail after the
    # first yaw has become a local one: the original would turn it again.
    if attributes is None:
        for each in pictures:
            each.instances.attr_labels = each.labels.new_full(
                each.labels.shape, head.attr_background_label
            )
    for each in full:
        boxes = each.boxes_3d
        boxes[..., _YAW] = -torch.atan2(boxes[..., 0], boxes[..., 2]) + boxes[..., _YAW]
    return tuple(targets)


FORMS = (
    Form(
        module=f"{ASSIGNERS}.sim_ota_assigner",
        owner="SimOTAAssigner",
        method="assign",
        signature=("self", "pred_instances", "gt_instances", "gt_instances_ignore", "kwargs"),
        helpers=("get_in_gt_and_in_center_info", "dynamic_k_matching"),
        read=_read_simota,
    ),
    Form(
        module="mmdet3d.models.dense_heads.fcos_mono3d_head",
        owner="FCOSMono3DHead",
        method="get_targets",
        signature=("self", "points", "batch_gt_instances_3d", "batch_gt_instances"),
        # The loss reads no targets of points without ground truth. One of a subclass may.
        helpers=("_get_target_single", "loss_by_feat"),
        read=_read_fcos3d,
    ),
)
