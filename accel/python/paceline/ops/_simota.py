# SPDX-License-Identifier: Apache-2.0
"""SimOTA: the assignment of ground truths to the predictions of YOLOX-like heads."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from paceline._core.untraced import untraced
from paceline.ops import _arguments as arguments
from paceline.ops import _device, _native

Tensor = torch.Tensor
OUTSIDE = 100_000.0  # cost of a prior outside the box or the centre region
LEAST_UNION, LEAST_LOGARITHM = 1e-6, -100.0
BAD_ARGUMENT = -3


class SimOTAAssignment(NamedTuple):
    """What each prior of each image learns from.

    Args:
        gt_index: (images, P), int64: number of the ground truth within its image, -1 for
            background.
        labels: (images, P), int64: its class, -1 for background.
        overlaps: (images, P): IoU of the prediction with it, 0 for background.
    """

    gt_index: Tensor
    labels: Tensor
    overlaps: Tensor


class _Settings(NamedTuple):
    radius: float
    topk: int
    iou_weight: float
    cls_weight: float
    least_overlap: float
    center_only: bool


@untraced
def simota_assign(
    boxes: Tensor,
    scores: Tensor,
    priors: Tensor,
    offsets: Tensor | Sequence[int],
    gt_boxes: Tensor,
    gt_labels: Tensor,
    *,
    center_radius: float = 2.5,
    candidate_topk: int = 10,
    iou_weight: float = 3.0,
    cls_weight: float = 1.0,
    least_overlap: float = 1e-7,
    center_only: bool = False,
) -> SimOTAAssignment:
    """Says which ground truth each prediction learns from, for a batch of images.

    It computes what `SimOTAAssigner` of mmdetection does (Ge et al., YOLOX, arXiv 2107.08430). A
    pair costs `cls_weight` times the binary cross entropy of the scores with the class, minus
    `iou_weight` times the logarithm of the IoU. It costs 100,000 more if the prior does not lie in
    both the box and its centre region. A ground truth takes the priors that cost least, as many as
    its `candidate_topk` highest IoUs sum to, at least one. If several take a prior, it goes to the
    one of all ground truths of the image that it costs least. Equal costs go to the lowest index.

    Costs are computed in float64 from float32 inputs. In float32 the 100,000 would hide differences
    below 0.008, and equal costs would go anywhere.

    Args:
        boxes: (images, P, 4), predicted boxes x1, y1, x2, y2, in pixels.
        scores: (images, P, classes), predicted probabilities from 0 to 1; for YOLOX the root of the
            class's times the objectness.
        priors: (P, 4): x, y, stride of x, stride of y, in pixels.
        offsets: (images + 1) whole numbers: image i has the ground truths from offsets[i] up to
            offsets[i + 1] of the G rows that the arguments below have.
        gt_boxes: (G, 4), x1, y1, x2, y2, in pixels.
        gt_labels: (G), classes, whole numbers from 0.
        center_radius: half the side of a centre region, in strides.
        candidate_topk: how many IoUs are summed.
        iou_weight: at least 0.
        cls_weight: at least 0.
        least_overlap: above 0, added to an IoU before its logarithm; YOLOX's own code has 1e-8.
        center_only: whether a prior need not lie in the box, as in YOLOX's repository after 0.3.0,
            whose `center_radius` is 1.5. PyTorch's operations compute that, on all devices.

    Returns:
        Tensors (images, P). A ground truth with NaN in its box, or of an area that is NaN, takes no
        prior. If a prior in any box or centre region predicts a box whose IoU is NaN, every ground
        truth of its image takes one prior, as in mmdetection. That prior is the last choice; its
        overlap is NaN if no other was left.

    Raises:
        TypeError: an argument is no tensor, of a wrong kind of dtype, or no whole number.
        ValueError: a shape, `offsets`, a label or a setting does not fit, or a score that is needed
            is not from 0 to 1; the text says which.

    Example:
        >>> assignment = paceline.ops.simota_assign(
        ...     boxes=torch.tensor([[[0.0, 0.0, 9.0, 9.0], [50.0, 50.0, 60.0, 60.0]]]),
        ...     scores=torch.tensor([[[0.9, 0.1], [0.2, 0.3]]]),
        ...     priors=torch.tensor([[4.0, 4.0, 8.0, 8.0], [52.0, 52.0, 8.0, 8.0]]),
        ...     offsets=[0, 1],
        ...     gt_boxes=torch.tensor([[0.0, 0.0, 10.0, 10.0]]),
        ...     gt_labels=torch.tensor([0]),
        ... )
        >>> assignment.gt_index
        tensor([[ 0, -1]])
    """
    settings = _Settings(
        arguments.number("center_radius", center_radius, 0),
        arguments.whole("candidate_topk", candidate_topk),
        arguments.number("iou_weight", iou_weight, 0),
        arguments.number("cls_weight", cls_weight, 0),
        arguments.number("least_overlap", least_overlap, 0, open_end=True),
        center_only,
    )
    boxes = arguments.floats("boxes", boxes, "images", "P", 4)
    dtype = arguments.computed_in(boxes)
    tensors, begins, labels = _checked(boxes, scores, priors, offsets, gt_boxes, gt_labels)
    tensors = [arguments.cast(each, dtype).contiguous() for each in tensors]
    return _assigned(tensors, begins, labels, settings)


def _assigned(
    tensors: list[Tensor], begins: list[int], labels: Tensor, settings: _Settings
) -> SimOTAAssignment:
    """The assignment by whatever computes it for these tensors."""
    has_kernels = tensors[0].dtype is torch.float32 and not settings.center_only
    if has_kernels and _device.takes("simota_assign", [*tensors, labels]):
        return _on_device(tensors, begins, labels, settings)
    _check_labels(labels, tensors[1].shape[2])
    if has_kernels and _native.takes("simota_assign", torch.float32, [*tensors, labels]):
        return _by_library(tensors, begins, labels, settings)
    return _by_torch(tensors, begins, labels, settings)


def _checked(
    boxes: Tensor,
    scores: Tensor,
    priors: Tensor,
    offsets: Tensor | Sequence[int],
    gt_boxes: Tensor,
    gt_labels: Tensor,
) -> tuple[list[Tensor], list[int], Tensor]:
    """The tensors of floating-point numbers, the offsets and the labels."""
    images, count = boxes.shape[:2]
    arguments.at_most(images, "boxes", "images")
    arguments.at_most(count, "boxes", "priors")
    scores = arguments.floats("scores", scores, images, count, "classes")
    priors = arguments.floats("priors", priors, count, 4)
    gt_labels = arguments.integers("gt_labels", gt_labels, "G")
    gt_boxes = arguments.floats("gt_boxes", gt_boxes, gt_labels.shape[0], 4)
    others = {"scores": scores, "priors": priors, "gt_boxes": gt_boxes, "gt_labels": gt_labels}
    arguments.alike("boxes", boxes, others)
    begins = arguments.offsets_of(offsets, gt_labels.shape[0], "gt_labels")
    if len(begins) != images + 1:
        raise ValueError(
            f"offsets has {len(begins)} numbers for {images} images of boxes: pass {images + 1}"
        )
    if scores.shape[2] == 0 and gt_labels.shape[0] > 0:
        raise ValueError(
            f"scores has 0 classes, and gt_labels has {gt_labels.shape[0]} rows: pass scores of at"
            " least one class"
        )
    return [boxes, scores, priors, gt_boxes], begins, gt_labels.contiguous()


def _check_labels(labels: Tensor, classes: int) -> None:
    if labels.numel() == 0:
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise ValueError(
            f"gt_labels has {low if low < 0 else high}, and scores has {classes} classes:"
            f" pass labels from 0 to {classes - 1}"
        )


def _refuse(score: float, image: int, prior: int, label: int) -> None:
    raise ValueError(
        f"scores[{image}, {prior}, {label}] is {score:g}: pass probabilities from 0 to 1, as the"
        " sigmoid of logits"
    )


def _room(boxes: Tensor, labels: Tensor) -> SimOTAAssignment:
    """Not yet written. torch.empty() takes twice as long."""
    images, count = boxes.shape[:2]
    whole = labels.new_empty
    return SimOTAAssignment(
        whole(images, count), whole(images, count), boxes.new_empty(images, count)
    )


def _call(
    tensors: list[Tensor],
    offsets: Any,
    gt_labels: Tensor,
    settings: _Settings,
    result: SimOTAAssignment,
) -> _native.Assignment:
    boxes, scores, priors, gt_boxes = tensors
    return _native.Assignment(
        ctypes.sizeof(_native.Assignment), settings.topk, *scores.shape, boxes.data_ptr(),
        scores.data_ptr(), priors.data_ptr(), ctypes.addressof(offsets), gt_boxes.data_ptr(),
        gt_labels.data_ptr(), settings.radius, settings.iou_weight, settings.cls_weight,
        settings.least_overlap, *[each.data_ptr() for each in result], -1,
    )  # fmt: skip


def _on_device(
    tensors: list[Tensor], begins: list[int], gt_labels: Tensor, settings: _Settings
) -> SimOTAAssignment:
    boxes = tensors[0]
    result = _room(boxes, gt_labels)
    # Of each prior: a float64, and two int32.
    room = gt_labels.new_empty(boxes.shape[0] * boxes.shape[1] * 2)
    offsets = (ctypes.c_int64 * len(begins))(*begins)
    call = _call(tensors, offsets, gt_labels, settings, result)
    function = _device.functions().simota_assign
    _device.launch(function, call, boxes.device, room.data_ptr())
    return result


def _by_library(
    tensors: list[Tensor], begins: list[int], gt_labels: Tensor, settings: _Settings
) -> SimOTAAssignment:
    boxes, scores = tensors[:2]
    result = _room(boxes, gt_labels)
    offsets = (ctypes.c_int64 * len(begins))(*begins)
    call = _call(tensors, offsets, gt_labels, settings, result)
    code = _native.call(_native.functions().simota_assign, call)
    if code == BAD_ARGUMENT and call.bad_score >= 0:
        row, label = divmod(call.bad_score, scores.shape[2])
        image, prior = divmod(row, scores.shape[1])
        _refuse(float(scores[image, prior, label]), image, prior, label)
    _native.must(code)
    return result


def _by_torch(
    tensors: list[Tensor], begins: list[int], gt_labels: Tensor, settings: _Settings
) -> SimOTAAssignment:
    boxes, scores, priors, gt_boxes = tensors
    shape = boxes.shape[:2]
    result = SimOTAAssignment(
        gt_labels.new_full(shape, -1), gt_labels.new_full(shape, -1), boxes.new_zeros(shape)
    )
    for image, (begin, end) in enumerate(zip(begins, begins[1:])):
        labels, truths = gt_labels[begin:end], gt_boxes[begin:end].double()
        valid, in_both = _regions(priors.double(), truths, settings)
        places = valid.nonzero()[:, 0]
        if places.numel() == 0:
            continue
        own = scores[image, places]
        bad = ((own >= 0) & (own <= 1)).logical_not().nonzero()
        if bad.numel() > 0:
            row, label = bad[0].tolist()
            _refuse(float(own[row, label]), image, int(places[row]), label)
        real = _areas(truths).isnan().logical_not().nonzero()[:, 0]
        overlaps = _overlaps(boxes[image, places].double(), truths[real])
        costs = (
            _class_costs(own.double(), labels[real]) * settings.cls_weight
            - torch.log(overlaps + settings.least_overlap) * settings.iou_weight
            + in_both[places][:, real].logical_not().double() * OUTSIDE
        )
        chosen = winners(costs, _wanted(overlaps, settings.topk))
        found = chosen >= 0
        places, chosen = places[found], chosen[found]
        result.gt_index[image, places] = real[chosen]
        result.labels[image, places] = labels[real[chosen]]
        result.overlaps[image, places] = overlaps[found, chosen].to(boxes.dtype)
    return result


def _regions(priors: Tensor, truths: Tensor, settings: _Settings) -> tuple[Tensor, Tensor]:
    """Which priors lie in any region, and which lie in all regions of each ground truth."""
    x, y, stride_x, stride_y = (each[:, None] for each in priors.unbind(1))
    left, top, right, bottom = truths.unbind(1)
    middle_x, middle_y = (left + right) / 2, (top + bottom) / 2
    reach_x, reach_y = settings.radius * stride_x, settings.radius * stride_y
    in_centre = (
        (x > middle_x - reach_x)
        & (x < middle_x + reach_x)
        & (y > middle_y - reach_y)
        & (y < middle_y + reach_y)
    )
    if settings.center_only:
        return in_centre.any(1), in_centre
    in_box = (x > left) & (y > top) & (x < right) & (y < bottom)
    return (in_box | in_centre).any(1), in_box & in_centre


def _areas(boxes: Tensor) -> Tensor:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def _overlaps(boxes: Tensor, others: Tensor) -> Tensor:
    low = torch.max(boxes[:, None, :2], others[:, :2])
    high = torch.min(boxes[:, None, 2:], others[:, 2:])
    sides = (high - low).clamp(min=0)
    shared = sides[..., 0] * sides[..., 1]
    return shared / (_areas(boxes)[:, None] + _areas(others) - shared).clamp(min=LEAST_UNION)


def _class_costs(scores: Tensor, labels: Tensor) -> Tensor:
    """The cross entropy as if no class were right, corrected for the one that is."""
    of_miss = torch.log1p(-scores).clamp(min=LEAST_LOGARITHM)
    of_hit = torch.log(scores).clamp(min=LEAST_LOGARITHM)
    return (of_miss - of_hit)[:, labels] - of_miss.sum(1, keepdim=True)


def _wanted(overlaps: Tensor, topk: int) -> Tensor:
    """How many rows each ground truth takes."""
    highest = torch.topk(overlaps, min(topk, overlaps.shape[0]), dim=0)[0].sum(0)
    return torch.nan_to_num(highest, nan=1.0).clamp(1, overlaps.shape[0]).long()


def winners(costs: Tensor, wanted: Tensor) -> Tensor:
    """The ground truth of each row, or -1: each takes the rows that cost least."""
    order = torch.sort(costs, dim=0, stable=True)[1]
    ranks = torch.empty_like(order)
    ranks.scatter_(
        0, order, torch.arange(costs.shape[0], device=costs.device)[:, None].expand_as(order)
    )
    return settled(costs, ranks < wanted)


def settled(costs: Tensor, takes: Tensor) -> Tensor:
    """The ground truth of each row, or -1. Of a row that several take: where it costs least."""
    many = takes.sum(1)
    first = takes.to(torch.uint8).argmax(1)
    chosen = torch.where(many > 1, torch.min(costs, dim=1)[1], first)
    return chosen.masked_fill(many == 0, -1)
