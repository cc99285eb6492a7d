# SPDX-License-Identifier: Apache-2.0
"""The assignment of RTMDet in mmdetection, by its soft labels.

The original computes a cost of each class for each pair of a prior and a ground truth, and matches
one ground truth after the other. Only the cost of the true class depends on the pair. So the sum
over the classes is known but for its rounding from one value for each prior and class, and one for
each pair. That rounding has a bound, which leaves a few pairs that may be matched. Their costs are
computed as the original computes them, in the types and under the autocast that the program has,
and all ground truths are matched at once. So the same priors are matched to the bit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from paceline._inject.detection_forms import (
    ASSIGNERS,
    FLOATS,
    INDICES,
    Call,
    Form,
    why_not_overlaps,
    why_not_tensors,
)

Tensor = torch.Tensor
_BACKGROUND, _LEAST_OVERLAP = 100_000_000, 1e-7
_ROUNDING = 2.0**-23  # of a float32 sum, relative to its larger term


class _Scene(NamedTuple):
    """One image. The centers are those of the ground truths."""

    boxes: Tensor
    scores: Tensor
    priors: Tensor
    gt_boxes: Tensor
    labels: Tensor
    centers: Tensor


def _read(assigner: Any, given: dict[str, Any], library: dict[str, Any]) -> Call | str:
    """The original has no look at ground truths to ignore, nor at other keywords."""
    known = {"soft_center_radius", "topk", "iou_weight", "iou_calculator"}
    if vars(assigner).keys() != known:
        return "settings that this release does not know"
    if (library["INF"], library["EPS"]) != (_BACKGROUND, _LEAST_OVERLAP):
        return "constants that this release does not know"
    predictions, truths = given["pred_instances"], given["gt_instances"]
    boxes, scores, priors = predictions.bboxes, predictions.scores, predictions.priors
    gt_boxes, labels = truths.bboxes, truths.labels
    if assigner.iou_weight < 0:
        return "a negative iou_weight"
    why = why_not_overlaps(assigner.iou_calculator)
    why = why or why_not_tensors((boxes, priors, gt_boxes), (torch.float32,), boxes)
    why = why or why_not_tensors((scores,), FLOATS, boxes)
    why = why or why_not_tensors((labels,), INDICES, boxes)
    if not why and hasattr(truths, "masks"):
        why = why_not_tensors((truths.masks,), (torch.bool, torch.uint8), boxes)
    if why:
        return why
    count, own = boxes.shape[:1], gt_boxes.shape[:1]
    shapes = (boxes.shape, priors.shape, gt_boxes.shape, scores.shape[:1], labels.shape)
    if shapes != ((*count, 4), (*count, 4), (*own, 4), count, own) or scores.dim() != 2:
        return "tensors of other shapes"
    if 0 in (*count, *own):
        return "no ground truths or no predictions"

    def compute() -> Any:
        if hasattr(truths, "masks"):
            centers = library["center_of_mass"](truths.masks, eps=_LEAST_OVERLAP)
        else:
            centers = (gt_boxes[:, :2] + gt_boxes[:, 2:]) / 2.0
        scene = _Scene(boxes, scores, priors, gt_boxes, labels.long(), centers)
        indices, overlaps, classes = _assign(assigner, scene)
        return library["AssignResult"](own[0], indices, overlaps, labels=classes)

    return Call(boxes.device, compute, needs_kernels=False)


def _assign(assigner: Any, scene: _Scene) -> tuple[Tensor, Tensor, Tensor]:
    """Of each prior: its ground truth from 1, or 0; their overlap; and the class, or -1."""
    boxes, labels = scene.boxes, scene.labels
    classes = F.one_hot(labels, scene.scores.shape[1])  # refuses labels that are no class
    points = scene.priors[:, None, :2]
    from_sides = torch.minimum(points - scene.gt_boxes[:, :2], scene.gt_boxes[:, 2:] - points)
    places = from_sides.amin(-1).gt(0).any(1).nonzero()[:, 0]
    index = labels.new_full(boxes.shape[:1], -1)
    if len(places) == 0:
        return index + 1, boxes.new_zeros(boxes.shape[:1]), index
    overlaps = assigner.iou_calculator(boxes[places], scene.gt_boxes)
    if overlaps.dtype is not torch.float32:
        raise TypeError(f"overlaps of {overlaps.dtype}")
    chosen = _matched(assigner, scene, places, overlaps, classes.float())
    index[places] = chosen
    best = overlaps.new_full(boxes.shape[:1], -_BACKGROUND)
    # The last column and the last class are those of background, whose number is -1.
    rows = torch.arange(len(places), device=boxes.device)
    best[places] = F.pad(overlaps, (0, 1), value=-_BACKGROUND)[rows, chosen]
    return index + 1, best, F.pad(labels, (0, 1), value=-1)[index]


def _class_costs(scores: Tensor, soft_labels: Tensor) -> Tensor:
    distance = soft_labels - scores.sigmoid()
    costs = F.binary_cross_entropy_with_logits(scores, soft_labels, reduction="none")
    return costs * (distance * distance)


def _matched(
    assigner: Any, scene: _Scene, places: Tensor, overlaps: Tensor, classes: Tensor
) -> Tensor:
    """The ground truth of each of these priors, or -1."""
    from paceline.ops._simota import settled

    scores, priors = scene.scores[places], scene.priors[places]
    of_overlap = torch.log(overlaps + _LEAST_OVERLAP) * -assigner.iou_weight
    distance = (priors[:, None, :2] - scene.centers).pow(2).sum(-1).sqrt() / priors[:, 2:3]
    of_center = torch.pow(10, distance - assigner.soft_center_radius)

    most = min(assigner.topk, len(places))
    overlap = overlaps.topk(most, 0)[0].sum(0)
    wanted = overlap.long().clamp(min=1)
    low, high = _bounds(scores, scene.labels, overlaps, of_overlap + of_center)
    reach = high.topk(most, 0, largest=False)[0].gather(0, wanted[None] - 1)
    least = high.min(1, keepdim=True)[0]
    # The original's order of infinite costs is arbitrary, and so is what it does with NaN. A prior
    # may be too far from all ground truths for a finite cost: then it is not matched.
    if not math.isfinite(float(overlap.sum() + reach.sum() + least.clamp(max=1).sum())):
        raise ValueError("a score, a box or a cost is not finite")
    pairs = low <= reach
    # A prior that several take goes to the one of all ground truths that it costs least.
    pairs |= (pairs.sum(1, keepdim=True) > 1) & (low <= least)
    prior, truth = pairs.nonzero(as_tuple=True)

    soft_labels = classes[truth] * overlaps[prior, truth][:, None]
    of_class = _class_costs(scores[prior], soft_labels).sum(-1)
    cost = of_class + of_overlap[prior, truth] + of_center[prior, truth]
    costs = torch.full_like(overlaps, float("inf"))
    costs[prior, truth] = cost
    # By ground truth, then by cost, then by prior.
    order = cost.sort(stable=True)[1]
    truth, by_truth = truth[order].sort(stable=True)
    prior = prior[order[by_truth]]
    counts = pairs.sum(0)
    ends = counts.cumsum(0) - counts + wanted
    takes = torch.zeros_like(pairs)
    takes[prior, truth] = torch.arange(len(truth), device=truth.device) < ends[truth]
    return settled(costs, takes)


def _bounds(
    scores: Tensor, labels: Tensor, overlaps: Tensor, others: Tensor
) -> tuple[Tensor, Tensor]:
    """What each pair costs at least and at most, as the original rounds it. `others`: its costs
    beside those of classes. NaN where they are infinite, which no other cost is less than.
    """
    count = scores.shape[1]
    # The columns are joined, since autocast to bfloat16 on a CPU refuses to join scores of float16.
    columns = torch.cat((torch.arange(count, device=labels.device), labels))
    costs = _class_costs(scores[:, columns], F.pad(overlaps, (count, 0)))
    of_misses, of_hits = costs[:, :count], costs[:, count:]
    size = of_misses.sum(1, keepdim=True) + of_hits + others
    costs = size - of_misses[:, labels]
    # A sum of n terms, none negative, differs by at most n - 1 roundings of half a last bit from
    # the true one, in any order. Two sums are compared. The rest is for what is added to them, and
    # for terms at the end of a tensor, which a CPU computes by other functions than those before.
    slack = (count + 64) * _ROUNDING
    return torch.sub(costs, size, alpha=slack), torch.add(costs, size, alpha=slack)


FORMS = (
    Form(
        module=f"{ASSIGNERS}.dynamic_soft_label_assigner",
        owner="DynamicSoftLabelAssigner",
        method="assign",
        signature=("self", "pred_instances", "gt_instances", "gt_instances_ignore", "kwargs"),
        helpers=("dynamic_k_matching",),
        functions=("center_of_mass",),
        read=_read,
        release="mmdetection 3.0.0 to 3.3.0",
        digests=("9b672ee96c8e29b284b3fa1f48f1bd2c944481db85ccc3e1ca34ec3bc95335b0",),
    ),
)
