# SPDX-License-Identifier: Apache-2.0
"""Voxelisation against mmcv's loop over points; and what the operators do without the library."""

from __future__ import annotations

from typing import Any

import originals
import pytest
import scenes
import torch
from paceline import ops
from paceline.ops import _native

INF, NAN = float("inf"), float("nan")
SIZE, SPAN = (0.5, 1.0, 2.0), (-2.0, -2.0, -1.0, 2.0, 2.0, 3.0)


def by_loop(
    clouds: list[torch.Tensor], max_points: int | None, max_voxels: int | None
) -> tuple[list[originals.Grouped], list[int]]:
    dtype = clouds[0].dtype
    low, size = torch.tensor(SPAN[:3], dtype=dtype), torch.tensor(SIZE, dtype=dtype)
    grid = torch.round((torch.tensor(SPAN[3:], dtype=dtype) - low) / size)
    groups, numbers = [], []
    for cloud in clouds:
        group, voxel_of_point = originals.voxels_by_loop(
            cloud, size, low, grid, max_points, max_voxels
        )
        before = sum(len(each.counts) for each in groups)
        numbers += [each + before if each >= 0 else -1 for each in voxel_of_point]
        groups.append(group)
    return groups, numbers


def check(clouds: list[torch.Tensor], max_points: int | None, max_voxels: int | None) -> None:
    found = ops.voxelize(
        torch.cat(clouds),
        SIZE,
        SPAN,
        offsets=scenes.offsets_of([len(each) for each in clouds]),
        max_points=max_points,
        max_voxels=max_voxels,
    )
    groups, numbers = by_loop(clouds, max_points, max_voxels)
    which = [torch.full((len(one.counts), 1), i) for i, one in enumerate(groups)]
    coords = torch.cat((torch.cat(which), torch.cat([one.coords for one in groups])), 1)
    assert torch.equal(found.coords, coords.to(torch.int32))
    assert torch.equal(found.counts, torch.cat([one.counts for one in groups]))
    assert found.voxel_of_point.tolist() == numbers
    if max_points is None:
        assert found.points is None
    else:
        assert found.points is not None
        filled = torch.cat([one.points for one in groups if one.points is not None])
        torch.testing.assert_close(found.points, filled, rtol=0, atol=0, equal_nan=True)


def cloud() -> torch.Tensor:
    """Points in and around the range, some of them on the sides of voxels."""
    points = torch.rand(scenes.upto(60), 4) * 6 - 3
    if scenes.upto(1):
        points = (points * 2).round() / 2
    return points


@pytest.mark.parametrize("plain", [False, True])
def test_random_clouds_are_grouped_as_by_the_loop(
    plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plain:
        monkeypatch.setattr(_native, "takes", lambda *_: False)
    torch.manual_seed(1)
    for i in range(60 if plain else 200):
        clouds = [cloud() for _ in range(1 + scenes.upto(3))]
        check(clouds, (None, 1, 3)[i % 3], (None, 4, 1000)[i // 3 % 3])


@pytest.mark.parametrize("plain", [False, True])
def test_edges(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plain:
        monkeypatch.setattr(_native, "takes", lambda *_: False)
    points = torch.tensor(
        [[NAN, 0, 0], [0, INF, 0], [0, 0, -INF], [-2, -2, -1], [2, 0, 0], [1.9999, 1.9999, 2.9999]]
    )
    check([points], 2, None)
    check([points[:0]], 2, 3)
    check([points[:0], points, points[:0], points], None, 1)
    # A number in another column may be anything.
    check([torch.tensor([[0.0, 0.0, 0.0, NAN]])], 2, 2)
    none = ops.voxelize(points[:0], SIZE, SPAN, offsets=[0], max_points=4)
    assert none.points is not None
    assert none.points.shape == (0, 4, 3)
    wide = ops.voxelize(points.double(), SIZE, SPAN, max_points=2)
    assert wide.points is not None
    assert wide.points.dtype is torch.float64
    assert wide.coords.tolist() == [[0, 0, 0, 0], [0, 1, 3, 7]]
    half = ops.voxelize(points.half().requires_grad_(), SIZE, SPAN, max_points=2)
    assert half.points is not None
    assert half.points.dtype is torch.float32
    assert not half.points.requires_grad
    # Cells of a grid whose number needs more than 32 bits.
    large = ops.voxelize(
        torch.tensor([[7e5, 7e5, 7e5], [0.0, 0.0, 0.0]]), (1.0,) * 3, (-8e5,) * 3 + (8e5,) * 3
    )
    assert large.coords.tolist() == [[0, *[1_500_000] * 3], [0, *[800_000] * 3]]


def test_large_clouds_are_the_same_in_every_run() -> None:
    torch.manual_seed(2)
    points = torch.randn(30_000, 4)
    settings: dict[str, Any] = {"offsets": [0, 9_999, 20_000, 30_000], "max_points": 3}
    once = ops.voxelize(points, (0.1, 0.1, 0.1), (-2,) * 3 + (2,) * 3, **settings)
    torch.set_num_threads(3)
    try:
        again = ops.voxelize(points, (0.1, 0.1, 0.1), (-2,) * 3 + (2,) * 3, **settings)
    finally:
        torch.set_num_threads(1)
    for one, other in zip(once, again):
        assert one is not None
        assert other is not None
        assert torch.equal(one, other)
    # Dynamic voxelisation counts all points.
    dynamic = ops.voxelize(points, (0.1, 0.1, 0.1), (-2,) * 3 + (2,) * 3)
    assert int(dynamic.counts.sum()) == int(dynamic.voxel_of_point.ge(0).sum())
    counts = torch.bincount(dynamic.voxel_of_point[dynamic.voxel_of_point >= 0])
    assert torch.equal(counts.to(torch.int32), dynamic.counts)


@pytest.mark.skipif(bool(_native.why_unavailable()), reason="no library")
def test_plain_torch_gives_large_clouds_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's voxels are computed so."""
    torch.manual_seed(3)
    points = torch.randn(30_000, 4) * torch.tensor([20.0, 20.0, 1.5, 1.0])
    points[::7, :3] = (points[::7, :3] / 0.16).round() * 0.16  # on the sides of voxels
    points[::500, 2] = NAN
    grid = (0.16, 0.16, 4.0), (0.0, -39.68, -3.0, 69.12, 39.68, 1.0)
    for most in ({"max_points": 5, "max_voxels": 2_000}, {"max_points": 2}, {}):
        settings: dict[str, Any] = {"offsets": [0, 9_999, 9_999, 30_000], **most}
        wanted = ops.voxelize(points, *grid, **settings)
        with monkeypatch.context() as patch:
            patch.setattr(_native, "takes", lambda *_: False)
            found = ops.voxelize(points, *grid, **settings)
        assert len(wanted.counts) > 2_000
        for one, other in zip(found, wanted):
            if other is None:
                assert one is None
            else:
                assert one is not None
                assert one.dtype == other.dtype
                assert torch.equal(one, other)


def test_settings_are_rounded_to_float32_whatever_the_points_are() -> None:
    """As in mmcv. In float32, 0.3 is three sides of 0.1; in float64, less than three of them."""
    size, span = (0.1, 0.1, 0.1), (0.0, 0.0, 0.0, 1.0, 1.0, 1.0)
    for dtype, cell in ((torch.float32, 3), (torch.float64, 2)):
        found = ops.voxelize(torch.tensor([[0.3, 0.0, 0.0]], dtype=dtype), size, span)
        assert found.coords.tolist() == [[0, 0, 0, cell]]
    points = torch.rand(500, 3, dtype=torch.float64)
    wanted = torch.floor(points / torch.tensor(size).double()).long()
    wide = ops.voxelize(points, size, span)
    assert torch.equal(wide.coords[wide.voxel_of_point][:, 1:].long(), wanted.flip(1))


@pytest.mark.parametrize("plain", [False, True])
def test_defaults_of_torch_change_nothing(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plain:
        monkeypatch.setattr(_native, "takes", lambda *_: False)
    points = torch.rand(50, 4)
    wanted = ops.voxelize(points, SIZE, SPAN, max_points=3, max_voxels=4)
    with scenes.other_defaults():
        found = ops.voxelize(points, SIZE, SPAN, max_points=3, max_voxels=4)
    for one, other in zip(wanted, found):
        assert one is not None
        assert other is not None
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


def test_subclasses_of_tensors_are_computed_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "call", None)
    check([torch.rand(20, 3).as_subclass(scenes.Own)], 2, 3)


@pytest.mark.parametrize(
    ("changed", "kind", "text"),
    [
        ({"points": [1]}, TypeError, "points is a list"),
        ({"points": torch.zeros(4)}, ValueError, r"points has shape \(4,\)"),
        ({"points": torch.zeros(4, 2)}, ValueError, "points has 2 columns: pass 3"),
        ({"points": torch.zeros(4, 3).long()}, TypeError, r"pass points.float\(\)"),
        ({"voxel_size": (1.0, 1.0)}, ValueError, "voxel_size has 2 numbers: pass 3"),
        ({"voxel_size": (1.0, 0.0, 1.0)}, ValueError, r"voxel_size\[1\] is 0.0: .* above 0"),
        ({"point_range": (0, 0, 0)}, ValueError, "point_range has 3 numbers: pass 6"),
        ({"point_range": (0, 0, 0, 1, NAN, 1)}, ValueError, r"point_range\[4\] is nan"),
        ({"point_range": (0, 3, 0, 4, 2, 4)}, ValueError, "point_range is 3 to 2 along y"),
        ({"voxel_size": (1e-8,) * 3}, ValueError, "voxels: pass a larger voxel_size"),
        ({"offsets": [0, 3]}, ValueError, "offsets ends with 3, but points has 4 rows"),
        ({"max_points": 0}, ValueError, "max_points is 0: .* from 1 to 2147483647, or None for"),
        ({"max_points": 2.0}, TypeError, "max_points is 2.0: pass a whole number"),
        ({"max_voxels": 2**31}, ValueError, "max_voxels is 2147483648: pass a whole number"),
        ({"voxel_size": (1.0, 1.0, 1e-60)}, ValueError, r"\[2\] is 1e-60, which is 0 in float32"),
        ({"voxel_size": (1e-40,) * 3}, ValueError, "inf x inf x inf voxels: pass a larger"),
        ({"voxel_size": (1.0, "a", 1.0)}, TypeError, r"voxel_size\[1\] is 'a': pass a number"),
        (
            {"point_range": (0, 0, -3e38, 1, 1, 3e38)},
            ValueError,
            "x inf voxels: pass a larger",
        ),
        ({"point_range": (0, 0, 3e38, 1, 1, -3e38)}, ValueError, "is 3e[+]38 to -3e[+]38 along z"),
        ({"point_range": (0, 0, 0, 1, 1, 1e300)}, ValueError, "1e[+]300, which is inf in float32"),
        ({"offsets": [0, 4.0]}, TypeError, r"offsets\[1\] is 4.0: pass a whole number from 0"),
        ({"max_voxels": -1}, ValueError, "max_voxels is -1"),
    ],
)
def test_wrong_arguments_are_named(changed: dict[str, Any], kind: type, text: str) -> None:
    arguments = {"points": torch.zeros(4, 3), "voxel_size": SIZE, "point_range": SPAN, **changed}
    with pytest.raises(kind, match=text):
        ops.voxelize(**arguments)


def test_without_the_library_plain_torch_takes_over_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise OSError("libpaceline.so: no such file")

    monkeypatch.setattr(_native, "functions", missing)
    _native.why_unavailable.cache_clear()
    try:
        for _ in range(2):
            check([torch.rand(20, 3)], 2, 3)
    finally:
        _native.why_unavailable.cache_clear()
    said = "paceline: ops.voxelize runs in plain PyTorch: OSError: libpaceline.so: no such file\n"
    assert capsys.readouterr().err == said
