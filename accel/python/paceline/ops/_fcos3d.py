# SPDX-License-Identifier: Apache-2.0
"""The targets of an FCOS3D head."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from paceline._core.untraced import untraced
from paceline.ops import _arguments as arguments
from paceline.ops import _device, _native

Tensor = torch.Tensor
FAR = 1e8  # no upper end of a range
SIDES, YAW = 3, 6  # columns of a 3D box
DIAGONAL = 1.414  # the original's square root of two
LISTS = {list, tuple}
PLAIN = {int, float, bool}
WIDEST = 1e7  # a larger region would reach the distance that stands for "none"


class FCOS3DTargets(NamedTuple):
    """A tensor a level, whose rows are the P points of image 0, then those of image 1, and so on.

    Args:
        labels_3d: (images * P), int64.
        bbox_targets_3d: (images * P, columns of `bboxes_3d`): x and y from the centre to the
            point, depth, three sides, local yaw, others.
        centerness_targets: (images * P), 1 at the centre.
        attr_targets: (images * P), int64.
    """

    labels_3d: list[Tensor]
    bbox_targets_3d: list[Tensor]
    centerness_targets: list[Tensor]
    attr_targets: list[Tensor]


class _Truths(NamedTuple):
    """The checked ground truths. `rest` holds the columns of a target behind the two distances."""

    offsets: list[int]
    centers: Tensor
    bboxes: Tensor
    rest: Tensor
    labels: Tensor
    attributes: Tensor


class FCOS3DHead(NamedTuple):
    """The settings of an FCOS3D head, by default those of mmdetection3d for nuScenes.

    Args:
        strides: of each level, pixels between two points.
        regress_ranges: of each level, the least and the most pixels of the longest distance.
        center_sample_radius: in strides.
        centerness_alpha: how steeply the centerness falls with the distance.
        background_label: label of a point without ground truth.
        attr_background_label: attribute of a point without ground truth.
        norm_on_bbox: divides the two distances in `bbox_targets_3d` by the stride.

    Example:
        >>> paceline.ops.FCOS3DHead(background_label=3).strides
        (8, 16, 32, 64, 128)
    """

    strides: Sequence[float] = (8, 16, 32, 64, 128)
    regress_ranges: Sequence[tuple[float, float]] = (
        (-1, 48),
        (48, 96),
        (96, 192),
        (192, 384),
        (384, FAR),
    )
    center_sample_radius: float = 1.5
    centerness_alpha: float = 2.5
    background_label: int = 10
    attr_background_label: int = 9
    norm_on_bbox: bool = True


class _Level(NamedTuple):
    """The checked settings of a level, in the order of `_native.Level`."""

    radius: float
    divisor: float
    low: float
    high: float


class _Head(NamedTuple):
    """The checked settings."""

    levels: list[_Level]
    alpha: float
    background: int
    no_attribute: int


@untraced
def fcos3d_targets(
    points: Sequence[Tensor],
    offsets: Tensor | Sequence[int],
    centers_2d: Tensor,
    depths: Tensor,
    bboxes: Tensor,
    bboxes_3d: Tensor,
    labels_3d: Tensor,
    attr_labels: Tensor | None = None,
    *,
    head: FCOS3DHead = FCOS3DHead(),  # noqa: B008 - it cannot be changed
) -> FCOS3DTargets:
    """Says which ground truth each point of each feature map learns from, and its targets.

    It computes what `FCOSMono3DHead.get_targets` of mmdetection3d does (Wang et al., FCOS3D,
    arXiv 2104.10956). A point matches a ground truth on two conditions. It lies less than
    `center_sample_radius` strides from the projected centre, in x and in y. Its longest distance to
    a side of the 2D box lies in the level's range. Of several ground truths the one with the
    nearest centre wins; of equally near ones, the first.

    Unlike there, rows of `bbox_targets_3d` and `centerness_targets` without a ground truth are 0
    (no loss reads them), and `bboxes_3d` is not written to. A ground truth with NaN in its centre
    or 2D box matches no point.

    Args:
        points: of each level a tensor (P, 2): x and y in pixels of the image. It is quickest if
            they are a grid, row by row, as mmdetection3d makes them.
        offsets: (images + 1) whole numbers: image i has the ground truths from offsets[i] up to
            offsets[i + 1] of the G rows that the arguments below have.
        centers_2d: (G, 2), projected centres of the 3D boxes, in pixels.
        depths: (G), in metres.
        bboxes: (G, 4), 2D boxes x1, y1, x2, y2, in pixels.
        bboxes_3d: (G, 7 or more): x, y, z, three sides, yaw, others such as the velocity. The yaw
            becomes a local one, seen along the ray from the camera.
        labels_3d: (G), classes, whole numbers.
        attr_labels: (G), attributes, whole numbers. None: all are `attr_background_label`.
        head: the settings.

    Returns:
        Lists of a tensor a level, in the dtype of the points (float32 for 16-bit ones).

    Raises:
        TypeError: an argument is no tensor, of a wrong kind of dtype, or no number.
        ValueError: a shape, `offsets` or a setting does not fit; the text says which.

    Example:
        >>> targets = paceline.ops.fcos3d_targets(
        ...     [torch.tensor([[4.0, 4.0], [12.0, 4.0]])],
        ...     [0, 1],
        ...     centers_2d=torch.tensor([[5.0, 5.0]]),
        ...     depths=torch.tensor([20.0]),
        ...     bboxes=torch.tensor([[0.0, 0.0, 10.0, 10.0]]),
        ...     bboxes_3d=torch.tensor([[1.0, 0.0, 20.0, 4.0, 2.0, 2.0, 0.0]]),
        ...     labels_3d=torch.tensor([3]),
        ...     head=paceline.ops.FCOS3DHead(strides=[8], regress_ranges=[(-1, 48)]),
        ... )
        >>> targets.labels_3d
        [tensor([3, 3])]
    """
    levels, dtype = _levels(points)
    checked = _head(head, len(levels))
    truths = _truths(
        levels[0],
        offsets,
        centers_2d,
        depths,
        bboxes,
        bboxes_3d,
        labels_3d,
        attr_labels,
        dtype,
        checked,
    )
    tensors = [*levels, *truths[1:]]
    if _on_device(dtype, tensors, len(levels)):
        return _by_library(levels, truths, checked, on_device=True)
    if _native.takes("fcos3d_targets", dtype, tensors):
        return _by_library(levels, truths, checked, on_device=False)
    return _by_torch(levels, truths, checked)


def _levels(points: Sequence[Tensor]) -> tuple[list[Tensor], torch.dtype]:
    if len(points) == 0:
        raise ValueError("points is empty: pass a tensor of shape (P, 2) a level")
    levels = {
        f"points[{i}]": arguments.floats(f"points[{i}]", each, "P", 2)
        for i, each in enumerate(points)
    }
    for name, each in levels.items():
        arguments.at_most(each.shape[0], name, "rows")
    arguments.alike("points[0]", levels["points[0]"], levels)
    dtype = arguments.computed_in(levels["points[0]"])
    return [arguments.cast(each, dtype).contiguous() for each in levels.values()], dtype


def _head(head: FCOS3DHead, levels: int) -> _Head:
    """The checked settings. A program passes the same ones in each step, so they are kept if they
    are plain numbers, which cannot change.
    """
    strides, ranges = head[:2]
    if type(strides) in LISTS and type(ranges) in LISTS and LISTS.issuperset(map(type, ranges)):
        pairs: Any = tuple([tuple(each) for each in ranges])
        leaves = (*strides, *itertools.chain.from_iterable(pairs), *head[2:])
        types = tuple(map(type, leaves))  # a label of 10.0 equals one of 10, and is refused
        if PLAIN.issuperset(types):
            return _kept(FCOS3DHead(tuple(strides), pairs, *head[2:]), levels, *types)
    return _checked(head, levels)


def _checked(head: FCOS3DHead, levels: int, *_types: type) -> _Head:
    radius = arguments.number("center_sample_radius", head.center_sample_radius, 0, open_end=True)
    for name in ("strides", "regress_ranges"):
        count = len(getattr(head, name))
        if count != levels:
            raise ValueError(f"{name} has {count} items, and points has {levels}: pass one a level")
    strides = [
        arguments.number(f"strides[{i}]", each, 0, open_end=True, narrow=True)
        for i, each in enumerate(head.strides)
    ]
    if max(strides) * radius > WIDEST:
        raise ValueError(
            f"a centre region reaches {max(strides) * radius:g} pixels: pass smaller strides or a"
            f" smaller center_sample_radius, whose product is at most {WIDEST:g}"
        )
    radii = [
        arguments.number(
            f"strides[{i}] times center_sample_radius", each * radius, 0, open_end=True, narrow=True
        )
        for i, each in enumerate(strides)
    ]
    divisors = [each if head.norm_on_bbox else 1.0 for each in strides]
    ranges = [_range(f"regress_ranges[{i}]", each) for i, each in enumerate(head.regress_ranges)]
    return _Head(
        levels=[_Level(*each[:2], *each[2]) for each in zip(radii, divisors, ranges)],
        alpha=arguments.number("centerness_alpha", head.centerness_alpha, 0, narrow=True),
        background=_label("background_label", head.background_label),
        no_attribute=_label("attr_background_label", head.attr_background_label),
    )


_kept = functools.lru_cache(maxsize=16)(_checked)


def _label(name: str, value: int) -> int:
    return arguments.whole(name, value, -(2**63), 2**63 - 1)


def _range(name: str, value: Sequence[float]) -> tuple[float, float]:
    remedy = "pass the least and the most pixels, such as (48, 96)"
    try:
        low, high = value
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}: {remedy}") from None
    ends = arguments.real(f"{name}[0]", low), arguments.real(f"{name}[1]", high)
    if not ends[0] <= ends[1]:  # or NaN
        raise ValueError(f"{name} is {value!r}: {remedy}")
    return ends


def _truths(
    points: Tensor,
    offsets: Tensor | Sequence[int],
    centers: Tensor,
    depths: Tensor,
    bboxes: Tensor,
    boxes_3d: Tensor,
    labels: Tensor,
    attributes: Tensor | None,
    dtype: torch.dtype,
    head: _Head,
) -> _Truths:
    labels = arguments.integers("labels_3d", labels, "G")
    count = labels.shape[0]
    boxes = arguments.floats("bboxes_3d", boxes_3d, count, "7 or more")
    if boxes.shape[1] <= YAW:
        raise ValueError(
            f"bboxes_3d has {boxes.shape[1]} columns: pass 7 or more, of which the seventh is the"
            " yaw"
        )
    depths = arguments.floats("depths", depths, count)
    centers = arguments.floats("centers_2d", centers, count, 2)
    bboxes = arguments.floats("bboxes", bboxes, count, 4)
    if attributes is None:
        attributes = labels.new_full((count,), head.no_attribute)
    attributes = arguments.integers("attr_labels", attributes, count)
    others = {
        "centers_2d": centers,
        "depths": depths,
        "bboxes": bboxes,
        "bboxes_3d": boxes,
        "labels_3d": labels,
        "attr_labels": attributes,
    }
    # Before anything is computed of two of them.
    arguments.alike("points[0]", points, others)
    return _Truths(
        arguments.offsets_of(offsets, count, "labels_3d"),
        arguments.cast(centers, dtype).contiguous(),
        arguments.cast(bboxes, dtype).contiguous(),
        _rest(arguments.cast(depths, dtype), arguments.cast(boxes, dtype)),
        labels.contiguous(),
        attributes.contiguous(),
    )


def _rest(depths: Tensor, boxes: Tensor) -> Tensor:
    """Depth, three sides, local yaw, others. Each operation is a launch on a GPU."""
    rest = torch.cat((depths.unsqueeze(1), boxes.narrow(1, SIDES, boxes.shape[1] - SIDES)), 1)
    ray = torch.atan2(boxes.select(1, 0), boxes.select(1, 2))
    rest.select(1, 1 + YAW - SIDES).sub_(ray)
    return rest


def _on_device(dtype: torch.dtype, tensors: list[Tensor], levels: int) -> bool:
    fits = dtype is torch.float32 and levels <= _device.MOST_LEVELS
    return fits and _device.takes("fcos3d_targets", tensors)


def _by_library(
    levels: list[Tensor], truths: _Truths, head: _Head, on_device: bool
) -> FCOS3DTargets:
    images, columns = len(truths.offsets) - 1, truths.rest.shape[1] + 2
    counts = [points.shape[0] for points in levels]
    sizes = [images * count for count in counts]
    # Each level has memory of its own. If levels were views of one tensor, a change of one in place
    # would break the backward of the others. torch.empty() takes twice as long.
    whole, real = truths.labels.new_empty, truths.rest.new_empty
    results = FCOS3DTargets(
        [whole(size) for size in sizes],
        [real(size, columns) for size in sizes],
        [real(size) for size in sizes],
        [whole(size) for size in sizes],
    )
    rows: Any = (_native.Level * len(levels))()
    for i, tensors in enumerate(zip(levels, *results)):
        points, *written = [each.data_ptr() for each in tensors]
        rows[i] = _native.Level(points, counts[i], *head.levels[i], *written)
    offsets = (ctypes.c_int64 * len(truths.offsets))(*truths.offsets)
    call = _native.Targets(
        ctypes.sizeof(_native.Targets), columns, len(levels), head.alpha, images,
        ctypes.addressof(offsets), truths.centers.data_ptr(), truths.bboxes.data_ptr(),
        truths.rest.data_ptr(), truths.labels.data_ptr(), truths.attributes.data_ptr(),
        head.background, head.no_attribute, rows,
    )  # fmt: skip
    if on_device:
        _device.launch(_device.functions().fcos3d_targets, call, levels[0].device)
    else:
        _native.must(_native.call(_native.functions().fcos3d_targets, call))
    return results


def _by_torch(levels: list[Tensor], truths: _Truths, head: _Head) -> FCOS3DTargets:
    results = FCOS3DTargets([], [], [], [])
    for level, points in enumerate(levels):
        parts = [
            _image_by_torch(points, truths, begin, end, head, level)
            for begin, end in zip(truths.offsets, truths.offsets[1:])
        ] or [_image_by_torch(points[:0], truths, 0, 0, head, level)]
        for kind, tensors in zip(results, zip(*parts)):
            kind.append(torch.cat(tensors))
    return results


def _image_by_torch(
    points: Tensor, truths: _Truths, begin: int, end: int, head: _Head, level: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    count, columns = points.shape[0], truths.rest.shape[1] + 2
    labels = truths.labels.new_full((count,), head.background)
    attributes = truths.labels.new_full((count,), head.no_attribute)
    targets, centerness = points.new_zeros((count, columns)), points.new_zeros((count,))
    if begin == end:
        return labels, targets, centerness, attributes
    x, y = points[:, 0, None], points[:, 1, None]
    center_x, center_y = truths.centers[begin:end].unbind(1)
    settings, radius = head.levels[level], points.new_tensor(head.levels[level].radius)
    left, top, right, bottom = truths.bboxes[begin:end].unbind(1)
    matches = (
        (x > center_x - radius)
        & (x < center_x + radius)
        & (y > center_y - radius)
        & (y < center_y + radius)
    )
    longest = torch.max(torch.max(x - left, y - top), torch.max(right - x, bottom - y))
    matches &= (longest >= settings.low) & (longest <= settings.high)
    distances = torch.sqrt((x - center_x) ** 2 + (y - center_y) ** 2)
    distances = torch.where(matches, distances, distances.new_tensor(float("inf")))
    nearest, winner = distances.min(dim=1)
    found = matches.any(1)
    winner = winner + begin
    labels = torch.where(found, truths.labels[winner], labels)
    attributes = torch.where(found, truths.attributes[winner], attributes)
    off = (points - truths.centers[winner]) / settings.divisor
    targets = torch.where(found[:, None], torch.cat((off, truths.rest[winner]), 1), targets)
    near = torch.exp(-head.alpha * (nearest / (DIAGONAL * radius)))
    return labels, targets, torch.where(found, near, centerness), attributes
