# SPDX-License-Identifier: Apache-2.0
"""The algorithms as detection libraries run them, in plain PyTorch, written by their behaviour.

They are the oracle of the tests and the baseline of bench/ops. They make the P×G tensors that
paceline.ops avoids. The simple fixes beside them are those that keep to plain PyTorch. Ties go to
the lowest index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch.nn import functional

Tensor = torch.Tensor
FAR = 1e8  # a distance that no point has
OUTSIDE = 100_000.0  # added to the cost of a prior outside the centre region


class Objects(NamedTuple):
    """The ground truths of one image, as FCOS3D needs them."""

    bboxes: Tensor
    labels: Tensor
    boxes_3d: Tensor
    centers: Tensor
    depths: Tensor
    attributes: Tensor


class Head(NamedTuple):
    """The settings of an FCOS3D head."""

    strides: Sequence[float] = (8, 16, 32, 64, 128)
    ranges: Sequence[tuple[float, float]] = ((-1, 48), (48, 96), (96, 192), (192, 384), (384, FAR))
    radius: float = 1.5
    alpha: float = 2.5
    background: int = 10
    no_attribute: int = 9


def fcos3d_image(
    points: Tensor, ranges: Tensor, radii: Tensor, objects: Objects, head: Head
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The targets of one image. `ranges` (P, 2) and `radii` (P) hold each point's of its level."""
    count, known = points.shape[0], objects.labels.shape[0]
    code = objects.boxes_3d.shape[1]
    if known == 0:
        return (
            objects.labels.new_full((count,), head.background),
            points.new_zeros((count, code)),
            points.new_zeros((count,)),
            objects.attributes.new_full((count,), head.no_attribute),
        )
    boxes = objects.boxes_3d.clone()
    boxes[:, 6] = -torch.atan2(boxes[:, 0], boxes[:, 2]) + boxes[:, 6]
    xs = points[:, 0, None].expand(count, known)
    ys = points[:, 1, None].expand(count, known)
    centers = objects.centers[None].expand(count, known, 2)
    deltas_x = (xs - centers[..., 0])[..., None]
    deltas_y = (ys - centers[..., 1])[..., None]
    depths = objects.depths[None, :, None].expand(count, known, 1)
    others = boxes[None, :, 3:].expand(count, known, code - 3)
    targets = torch.cat((deltas_x, deltas_y, depths, others), dim=-1)

    bboxes = objects.bboxes[None].expand(count, known, 4)
    sides = torch.stack(
        (xs - bboxes[..., 0], ys - bboxes[..., 1], bboxes[..., 2] - xs, bboxes[..., 3] - ys), -1
    )
    reach = radii[:, None].expand(count, known)
    to_edges = torch.stack(
        (
            xs - (centers[..., 0] - reach),
            (centers[..., 0] + reach) - xs,
            ys - (centers[..., 1] - reach),
            (centers[..., 1] + reach) - ys,
        ),
        -1,
    )
    inside = to_edges.min(-1)[0] > 0
    longest = sides.max(-1)[0]
    limits = ranges[:, None, :].expand(count, known, 2)
    in_range = (longest >= limits[..., 0]) & (longest <= limits[..., 1])

    distances = torch.sqrt(torch.sum(targets[..., :2] ** 2, dim=-1))
    distances[inside == 0] = FAR
    distances[in_range == 0] = FAR
    nearest, winner = distances.min(dim=1)
    labels, attributes = objects.labels[winner], objects.attributes[winner]
    labels[nearest == FAR] = head.background
    attributes[nearest == FAR] = head.no_attribute
    targets = targets[range(count), winner]  # an index made on the host
    _ = sides[range(count), winner]  # 2D targets, which the loss leaves
    off = torch.sqrt(torch.sum(targets[:, :2] ** 2, dim=-1)) / (1.414 * radii)
    return labels, targets, torch.exp(-head.alpha * off), attributes


def fixed_fcos3d_image(
    points: Tensor, ranges: Tensor, radii: Tensor, objects: Objects, head: Head
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The simple fix: the winner is found first, and only its targets are computed."""
    x, y = points[:, 0, None], points[:, 1, None]
    center_x, center_y = objects.centers.unbind(1)
    left, top, right, bottom = objects.bboxes.unbind(1)
    reach = radii[:, None]
    matches = (x > center_x - reach) & (x < center_x + reach)
    matches = matches & (y > center_y - reach) & (y < center_y + reach)
    longest = torch.max(torch.max(x - left, right - x), torch.max(y - top, bottom - y))
    matches = matches & (longest >= ranges[:, :1]) & (longest <= ranges[:, 1:])
    distances = torch.sqrt((x - center_x) ** 2 + (y - center_y) ** 2)
    nearest, winner = torch.where(matches, distances, FAR).min(dim=1)
    found = nearest < FAR
    yaw = objects.boxes_3d[:, 6] - torch.atan2(objects.boxes_3d[:, 0], objects.boxes_3d[:, 2])
    rows = torch.cat(
        (
            objects.depths[:, None],
            objects.boxes_3d[:, 3:6],
            yaw[:, None],
            objects.boxes_3d[:, 7:],
        ),
        1,
    )
    return (
        torch.where(found, objects.labels[winner], head.background),
        torch.cat((points - objects.centers[winner], rows[winner]), 1),
        torch.exp(-head.alpha * nearest / (1.414 * radii)),
        torch.where(found, objects.attributes[winner], head.no_attribute),
    )


def fcos3d(
    points: Sequence[Tensor],
    images: Sequence[Objects],
    head: Head,
    of_image: Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]] = fcos3d_image,
) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
    """Labels, box targets, centernesses and attributes: for each level, image after image."""
    sizes = [each.shape[0] for each in points]
    ranges = torch.cat(
        [
            points[0].new_tensor(limits)[None].expand(size, 2)
            for limits, size in zip(head.ranges, sizes)
        ]
    )
    radii = torch.cat(
        [points[0].new_full((size,), s * head.radius) for s, size in zip(head.strides, sizes)]
    )
    everything = torch.cat(list(points))
    rows = [of_image(everything, ranges, radii, each, head) for each in images]
    levels = [
        [torch.cat(part) for part in zip(*(field.split(sizes) for field in fields))]
        for fields in zip(*rows)
    ]
    for targets, stride in zip(levels[1], head.strides):
        targets[:, :2] = targets[:, :2] / stride
    return levels[0], levels[1], levels[2], levels[3]


def window_attention(qkv: Tensor, table: Tensor, index: Tensor, mask: Tensor) -> Tensor:
    """The attention of a Swin Transformer. qkv: (windows, N, 3, heads, head_dim)."""
    q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    windows, heads, tokens, depth = q.shape
    scores = (q * depth**-0.5) @ k.transpose(-2, -1) + _bias(table, index, tokens)
    scores = scores.view(-1, mask.shape[0], heads, tokens, tokens) + mask[None, :, None]
    weights = scores.view(windows, heads, tokens, tokens).softmax(-1)
    return (weights @ v).transpose(1, 2).reshape(windows, tokens, heads * depth)


def fused_window_attention(qkv: Tensor, table: Tensor, index: Tensor, mask: Tensor) -> Tensor:
    """The simple fix: PyTorch's own fused attention, with bias and mask as one tensor."""
    q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    windows, heads, tokens, depth = q.shape
    added = _bias(table, index, tokens) + mask[:, None]
    added = added.repeat(windows // mask.shape[0], 1, 1, 1)
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=added)
    return out.transpose(1, 2).reshape(windows, tokens, heads * depth)


def _bias(table: Tensor, index: Tensor, tokens: int) -> Tensor:
    return table[index.reshape(-1)].view(1, tokens, tokens, -1).permute(0, 3, 1, 2)


class Assigned(NamedTuple):
    winners: Tensor  # (P): the ground truth's number, -1 for none
    overlaps: Tensor  # (P)


def overlaps_of(boxes: Tensor, others: Tensor) -> Tensor:
    """Intersection over union of each pair."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    other_areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
    low = torch.max(boxes[:, None, :2], others[None, :, :2])
    high = torch.min(boxes[:, None, 2:], others[None, :, 2:])
    sides = (high - low).clamp(min=0)
    shared = sides[..., 0] * sides[..., 1]
    union = areas[:, None] + other_areas[None] - shared
    return shared / torch.max(union, union.new_tensor([1e-6]))


def simota_image(
    boxes: Tensor,
    scores: Tensor,
    priors: Tensor,
    truths: Tensor,
    labels: Tensor,
    radius: float = 2.5,
    topk: int = 10,
    iou_weight: float = 3.0,
    cls_weight: float = 1.0,
    least_overlap: float = 1e-7,
    center_only: bool = False,
    stable: bool = True,
    costs_of: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Assigned:
    """One image. `stable=False` leaves ties to torch.topk, as the original does. `costs_of` takes
    the place of class_costs.
    """
    count, known = boxes.shape[0], truths.shape[0]
    winners = labels.new_full((count,), -1)
    best = boxes.new_zeros((count,))
    if known == 0 or count == 0:
        return Assigned(winners, best)
    valid, in_both = regions(priors, truths, radius, center_only)
    if not bool(valid.any()):
        return Assigned(winners, best)
    ious = overlaps_of(boxes[valid], truths)
    costs = (
        (costs_of or class_costs)(scores[valid], labels) * cls_weight
        - torch.log(ious + least_overlap) * iou_weight
        + (~in_both) * OUTSIDE
    )
    matches = torch.zeros_like(costs, dtype=torch.uint8)
    highest = torch.topk(ious, min(topk, ious.shape[0]), dim=0)[0]
    counts = torch.clamp(highest.sum(0).int(), min=1)
    for number in range(known):
        size = int(counts[number].item())
        if stable:
            chosen = torch.sort(costs[:, number], stable=True)[1][:size]
        else:
            chosen = torch.topk(costs[:, number], size, largest=False)[1]
        matches[:, number][chosen] = 1
    shared = matches.sum(1) > 1
    if bool(shared.any()):
        cheapest = torch.min(costs[shared], dim=1)[1]
        matches[shared] *= 0
        matches[shared, cheapest] = 1
    matched = matches.sum(1) > 0
    places = valid.nonzero()[:, 0][matched]
    winners[places] = matches[matched].argmax(1)
    best[places] = ious[matched, winners[places]]
    return Assigned(winners, best)


def regions(
    priors: Tensor, truths: Tensor, radius: float, center_only: bool = False
) -> tuple[Tensor, Tensor]:
    """Which priors lie in any box or centre region; of these, which lie in both of each truth. With
    `center_only` a box is no region.
    """
    x, y = priors[:, 0, None], priors[:, 1, None]
    reach_x, reach_y = radius * priors[:, 2, None], radius * priors[:, 3, None]
    left, top, right, bottom = truths.unbind(1)
    in_box = torch.stack((x - left, y - top, right - x, bottom - y), 1).min(1)[0] > 0
    middle_x, middle_y = (left + right) / 2.0, (top + bottom) / 2.0
    in_centre = (
        torch.stack(
            (
                x - (middle_x - reach_x),
                y - (middle_y - reach_y),
                (middle_x + reach_x) - x,
                (middle_y + reach_y) - y,
            ),
            1,
        ).min(1)[0]
        > 0
    )
    if center_only:
        in_box = in_centre
    valid = (in_box | in_centre).any(1)
    return valid, (in_box & in_centre)[valid]


def class_costs(scores: Tensor, labels: Tensor) -> Tensor:
    """The binary cross entropy of each prior's scores with each truth's class."""
    wanted = functional.one_hot(labels, scores.shape[1]).to(scores.dtype)
    shape = (scores.shape[0], labels.shape[0], scores.shape[1])
    return functional.binary_cross_entropy(
        scores[:, None].expand(shape).contiguous(),
        wanted[None].expand(shape).contiguous(),
        reduction="none",
    ).sum(-1)


def gathered_class_costs(scores: Tensor, labels: Tensor) -> Tensor:
    """The simple fix: without a tensor of priors times truths times classes."""
    of_miss = torch.log1p(-scores).clamp(min=-100)
    of_hit = torch.log(scores).clamp(min=-100)
    return (of_miss - of_hit)[:, labels] - of_miss.sum(1, keepdim=True)


class Grouped(NamedTuple):
    coords: Tensor  # (M, 3): z, y, x
    counts: Tensor  # (M)
    points: Tensor | None


def cells_of(points: Tensor, size: Tensor, low: Tensor, grid: Tensor) -> tuple[Tensor, Tensor]:
    """Each point's cell as x, y, z, and which points lie in the grid."""
    cells = torch.floor((points[:, :3] - low) / size)
    return cells, ((cells >= 0) & (cells < grid)).all(1)


def voxels_unique(
    points: Tensor, size: Tensor, low: Tensor, grid: Tensor, max_points: int, max_voxels: int
) -> Grouped:
    """Hard voxelisation by torch.unique over rows, as networks without mmcv's operators do it."""
    cells, inside = cells_of(points, size, low, grid)
    kept = points[inside]
    rows = cells[inside].to(torch.int32)[:, [2, 1, 0]]
    unique, voxels = torch.unique(rows, dim=0, return_inverse=True)
    return _grouped(kept, unique, voxels, max_points, max_voxels)


def voxels_by_key(
    points: Tensor, size: Tensor, low: Tensor, grid: Tensor, max_points: int, max_voxels: int
) -> Grouped:
    """The simple fix: rows become one number each, which is quicker to sort."""
    cells, inside = cells_of(points, size, low, grid)
    kept = points[inside]
    x, y, z = cells[inside].long().unbind(1)
    width, height = grid[0].long(), grid[1].long()
    keys, voxels = torch.unique((z * height + y) * width + x, return_inverse=True)
    row = keys // width
    unique = torch.stack((row // height, row % height, keys % width), 1).to(torch.int32)
    return _grouped(kept, unique, voxels, max_points, max_voxels)


def _grouped(
    kept: Tensor, unique: Tensor, voxels: Tensor, max_points: int, max_voxels: int
) -> Grouped:
    """Numbers the voxels in the order of their first points, and copies the points of each."""
    total, found = kept.shape[0], unique.shape[0]
    by_voxel, order = torch.sort(voxels, stable=True)
    counts = torch.bincount(voxels, minlength=found)
    starts = counts.cumsum(0) - counts
    places = torch.arange(total, device=kept.device) - starts[by_voxel]
    entry = torch.sort(order[starts])[1][:max_voxels]
    number = torch.full_like(counts, -1)
    number[entry] = torch.arange(entry.shape[0], device=kept.device)
    rows = number[by_voxel]
    taken = (rows >= 0) & (places < max_points)
    filled = kept.new_zeros((entry.shape[0], max_points, kept.shape[1]))
    filled[rows[taken], places[taken]] = kept[order[taken]]
    return Grouped(unique[entry], counts[entry].clamp(max=max_points).to(torch.int32), filled)


def voxels_by_loop(
    points: Tensor,
    size: Tensor,
    low: Tensor,
    grid: Tensor,
    max_points: int | None,
    max_voxels: int | None,
) -> tuple[Grouped, list[int]]:
    """mmcv's deterministic loop, point after point; and each point's voxel, or -1."""
    cells, inside = cells_of(points, size, low, grid)
    rows: dict[tuple[int, ...], list[int]] = {}
    numbers: dict[tuple[int, ...], int] = {}
    voxel_of_point = []
    for i in range(points.shape[0]):
        if not bool(inside[i]):
            voxel_of_point.append(-1)
            continue
        cell = tuple(int(each) for each in cells[i].tolist()[::-1])
        if cell not in rows:
            if max_voxels is not None and len(rows) == max_voxels:
                voxel_of_point.append(-1)
                continue
            numbers[cell] = len(rows)
            rows[cell] = []
        voxel_of_point.append(numbers[cell])
        if max_points is None or len(rows[cell]) < max_points:
            rows[cell].append(i)
    coords = torch.tensor(list(rows), dtype=torch.int32).reshape(-1, 3)
    counts = torch.tensor([len(each) for each in rows.values()], dtype=torch.int32)
    if max_points is None:
        return Grouped(coords, counts, None), voxel_of_point
    filled = points.new_zeros((len(rows), max_points, points.shape[1]))
    for number, members in enumerate(rows.values()):
        filled[number, : len(members)] = points[members]
    return Grouped(coords, counts, filled), voxel_of_point
