# SPDX-License-Identifier: Apache-2.0
"""Points of a LiDAR grouped into voxels."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from paceline._core.untraced import untraced
from paceline.ops import _arguments as arguments
from paceline.ops import _native

Tensor = torch.Tensor
AXES = 3
MOST_CELLS = 2**62
ANY = ", or None for any number"


class Voxels(NamedTuple):
    """Voxels in the order in which points enter them, cloud after cloud.

    Args:
        coords: (V, 4), int32: cloud, z, y, x.
        counts: (V), int32: points of each voxel, at most `max_points`.
        voxel_of_point: (N), int64: row of each point's voxel, or -1.
        points: (V, max_points, columns), 0 behind the last point. None without `max_points`.
    """

    coords: Tensor
    counts: Tensor
    voxel_of_point: Tensor
    points: Tensor | None


class Grid(NamedTuple):
    low: tuple[float, ...]  # of x, y, z
    size: tuple[float, ...]
    cells: tuple[int, ...]


@untraced
def voxelize(
    points: Tensor,
    voxel_size: Sequence[float],
    point_range: Sequence[float],
    *,
    offsets: Tensor | Sequence[int] | None = None,
    max_points: int | None = None,
    max_voxels: int | None = None,
) -> Voxels:
    """Groups points of LiDAR clouds into voxels: hard with `max_points`, dynamic without.

    Hard voxelisation gives what the deterministic `hard_voxelize` of mmcv does (PointPillars,
    arXiv 1812.05784): the first `max_points` points of the first `max_voxels` voxels, in the order
    of the points. Dynamic voxelisation (arXiv 1910.06528) keeps all: `coords[voxel_of_point]` are
    the cells of the points. The result is the same in every run.

    Points outside the range, and with NaN in x, y or z, belong to no voxel.

    `voxel_size` and `point_range` are rounded to float32, as in mmcv. The cell is computed in the
    dtype of the points. So a float64 point within rounding of a voxel's side may go to another
    voxel than the same point in float32.

    Args:
        points: (N, 3 or more): x, y, z in metres, others such as the reflectance.
        voxel_size: sides of a voxel along x, y, z, in metres.
        point_range: x, y, z of the lowest corner, then of the highest, in metres.
        offsets: (clouds + 1) whole numbers: cloud i has the points from offsets[i] up to
            offsets[i + 1]. None: one cloud.
        max_points: most points of a voxel; later ones are left out. None: dynamic.
        max_voxels: most voxels of a cloud; later ones are left out, with their points. None: any
            number.

    Returns:
        The voxels of all clouds. `points` is a new tensor without gradient, in the dtype of the
        points (float32 for 16-bit ones).

    Raises:
        TypeError: `points` is no tensor of floating-point numbers, or a setting is no number.
        ValueError: a shape, `offsets` or a setting does not fit; the text says which.

    Example:
        >>> cloud = torch.tensor([[0.1, 0.1, 0.1], [1.2, 0.1, 0.1], [0.2, 0.3, 0.9]])
        >>> voxels = paceline.ops.voxelize(cloud, (1, 1, 1), (0, 0, 0, 4, 4, 1), max_points=5)
        >>> voxels.counts
        tensor([2, 1], dtype=torch.int32)
        >>> voxels.voxel_of_point
        tensor([0, 1, 0])
    """
    points = _points_of(points)
    grid = grid_of(voxel_size, point_range)
    count = points.shape[0]
    begins = arguments.offsets_of([0, count] if offsets is None else offsets, count, "points")
    if max_points is not None:
        max_points = arguments.whole("max_points", max_points, other=ANY)
    if max_voxels is not None:
        max_voxels = arguments.whole("max_voxels", max_voxels, other=ANY)
    if _native.takes("voxelize", points.dtype, [points]):
        return _by_library(points, begins, grid, max_points, max_voxels)
    return _by_torch(points, begins, grid, max_points, max_voxels)


@untraced
def hard(
    points: Tensor,
    voxel_size: Sequence[float],
    point_range: Sequence[float],
    max_points: int,
    max_voxels: int,
    *,
    nan_is_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """What mmcv's deterministic `hard_voxelize` returns for one cloud: points of the voxels, their
    z, y, x, and their counts.

    `nan_is_first`: a point with NaN in x, y or z belongs to the first cell along that axis, as in
    mmcv's kernels for GPUs, which convert NaN to 0.
    """
    if not nan_is_first:
        found = voxelize(
            points, voxel_size, point_range, max_points=max_points, max_voxels=max_voxels
        )
    else:
        points = _points_of(points)
        max_points = arguments.whole("max_points", max_points)
        max_voxels = arguments.whole("max_voxels", max_voxels)
        grid = grid_of(voxel_size, point_range)
        begins = [0, points.shape[0]]
        found = _by_torch(points, begins, grid, max_points, max_voxels, nan_is_first=True)
    assert found.points is not None
    # A copy also of a single row, whose view counts as contiguous.
    cells = found.coords[:, 1:].clone(memory_format=torch.contiguous_format)
    return found.points, cells, found.counts


def _points_of(points: Any) -> Tensor:
    """The points in the dtype that the operator computes in."""
    points = arguments.floats("points", points, "N", "3 or more")
    if points.shape[1] < AXES:
        raise ValueError(
            f"points has {points.shape[1]} columns: pass 3 or more, the first x, y and z"
        )
    return points.to(arguments.computed_in(points)).contiguous()


def grid_of(size: Sequence[float], span: Sequence[float]) -> Grid:
    if len(size) != AXES:
        raise ValueError(f"voxel_size has {len(size)} numbers: pass 3, along x, y and z")
    if len(span) != 2 * AXES:
        raise ValueError(f"point_range has {len(span)} numbers: pass 6, x, y, z of two corners")
    # Settings are numbers of 32 bits in mmcv, whatever the points are.
    narrow = arguments.as_float32
    sides = tuple(
        narrow(arguments.number(f"voxel_size[{i}]", each, 0, open_end=True, narrow=True))
        for i, each in enumerate(size)
    )
    ends = [
        narrow(arguments.number(f"point_range[{i}]", each, narrow=True))
        for i, each in enumerate(span)
    ]
    ratios = [
        narrow(narrow(high - low) / side) for low, high, side in zip(ends, ends[AXES:], sides)
    ]
    # More than MOST is refused below, as is less than 1. Infinity has no whole number.
    cells = tuple(math.floor(max(0.0, min(each, 2.0 * arguments.MOST)) + 0.5) for each in ratios)
    if min(cells) < 1:
        axis = cells.index(min(cells))
        raise ValueError(
            f"point_range is {ends[axis]:g} to {ends[axis + AXES]:g} along {'xyz'[axis]}, and"
            f" voxel_size {sides[axis]:g}: pass a range of one voxel or more"
        )
    if max(cells) > arguments.MOST or math.prod(cells) > MOST_CELLS:
        raise ValueError(
            f"point_range and voxel_size make {' x '.join(f'{each:.9g}' for each in ratios)}"
            " voxels: pass a larger voxel_size or a smaller point_range"
        )
    return Grid(tuple(ends[:AXES]), sides, cells)


def _by_library(
    points: Tensor, begins: list[int], grid: Grid, max_points: int | None, max_voxels: int | None
) -> Voxels:
    sizes = [end - begin for begin, end in zip(begins, begins[1:])]
    rows = sum(sizes if max_voxels is None else [min(each, max_voxels) for each in sizes])
    coords = torch.empty((rows, AXES + 1), dtype=torch.int32, device="cpu")
    counts = torch.empty(rows, dtype=torch.int32, device="cpu")
    voxel_of_point = torch.empty(points.shape[0], dtype=torch.int64, device="cpu")
    offsets = (ctypes.c_int64 * len(begins))(*begins)
    voxel_offsets = (ctypes.c_int64 * len(begins))()
    call = _native.Clouds(
        ctypes.sizeof(_native.Clouds), points.shape[1], len(sizes), ctypes.addressof(offsets),
        points.data_ptr(), grid.low, grid.size, grid.cells,
        -1 if max_voxels is None else max_voxels, -1 if max_points is None else max_points,
        voxel_of_point.data_ptr(), coords.data_ptr(), counts.data_ptr(),
        ctypes.addressof(voxel_offsets),
    )  # fmt: skip
    functions = _native.functions()
    _native.must(_native.call(functions.voxels_number, call))
    found = voxel_offsets[len(sizes)]
    # A copy, so that the room for as many voxels as points is given back.
    coords, counts = coords[:found].clone(), counts[:found].clone()
    if max_points is None:
        return Voxels(coords, counts, voxel_of_point, None)
    call.coords, call.counts = coords.data_ptr(), counts.data_ptr()
    filled = torch.empty((found, max_points, points.shape[1]), dtype=torch.float32, device="cpu")
    _native.must(_native.call(functions.voxels_fill, call, filled.data_ptr()))
    return Voxels(coords, counts, voxel_of_point, filled)


def _by_torch(
    points: Tensor,
    begins: list[int],
    grid: Grid,
    max_points: int | None,
    max_voxels: int | None,
    *,
    nan_is_first: bool = False,
) -> Voxels:
    device, count = points.device, points.shape[0]
    low, size = points.new_tensor(grid.low), points.new_tensor(grid.size)
    cells = torch.floor((points[:, :AXES] - low) / size)
    if nan_is_first:
        cells = torch.nan_to_num(cells)  # infinity stays outside any grid
    limits = torch.tensor(grid.cells, device=device, dtype=torch.float64)
    inside = ((cells >= 0) & (cells < limits)).all(1)
    where = inside.nonzero()[:, 0]  # rows of the points that have a voxel
    x, y, z = cells[where].long().unbind(1)
    sizes = torch.tensor(
        [end - begin for begin, end in zip(begins, begins[1:])], device=device, dtype=torch.int64
    )
    clouds = torch.repeat_interleave(torch.arange(len(sizes), device=device), sizes)[where]
    # Clouds are told apart by a sort of their own, since cells alone may need all of 62 bits.
    keys, order = torch.sort((z * grid.cells[1] + y) * grid.cells[0] + x, stable=True)
    by_cloud, again = torch.sort(clouds[order], stable=True)
    keys, order = keys[again], order[again]
    is_first = torch.ones_like(keys, dtype=torch.bool)
    is_first[1:] = (keys[1:] != keys[:-1]) | (by_cloud[1:] != by_cloud[:-1])
    starts = is_first.nonzero()[:, 0]
    firsts, by_entry = torch.sort(order[starts])  # the first point of each voxel
    numbers = torch.empty_like(by_entry)
    numbers[by_entry] = torch.arange(len(by_entry), device=device)
    group = is_first.long().cumsum(0) - 1
    voxels = torch.empty_like(order)
    voxels[order] = numbers[group]
    places = torch.empty_like(order)  # of a point within its voxel
    places[order] = torch.arange(len(order), device=device) - starts[group]

    kept = torch.ones_like(firsts, dtype=torch.bool)
    if max_voxels is not None:
        of_voxel = clouds[firsts]
        first_of_cloud = torch.searchsorted(of_voxel, torch.arange(len(sizes), device=device))
        kept = torch.arange(len(firsts), device=device) - first_of_cloud[of_voxel] < max_voxels
    renumbered = torch.where(kept, kept.long().cumsum(0) - 1, -torch.ones_like(firsts))
    voxels, firsts = renumbered[voxels], firsts[kept]
    voxel_of_point = torch.full((count,), -1, dtype=torch.int64, device=device)
    voxel_of_point[where] = voxels
    coords = torch.stack((clouds[firsts], z[firsts], y[firsts], x[firsts]), 1).to(torch.int32)
    counts = torch.bincount(voxels[voxels >= 0], minlength=len(firsts))
    if max_points is None:
        return Voxels(coords, counts.to(torch.int32), voxel_of_point, None)
    filled = points.new_zeros((len(firsts), max_points, points.shape[1]))
    taken = (voxels >= 0) & (places < max_points)
    filled[voxels[taken], places[taken]] = points[where[taken]]
    return Voxels(coords, counts.clamp(max=max_points).to(torch.int32), voxel_of_point, filled)
