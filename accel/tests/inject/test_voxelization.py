# SPDX-License-Identifier: Apache-2.0
"""mmcv's hard voxelisation is the operator's where its result is known to the bit and the operator
is quicker, and mmcv's where anything is not.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import swin_stand_in
import torch
import voxel_fake
from paceline._core import explain, reports
from paceline._inject import detection, operators, operators_trial, voxel_forms
from paceline.ops import _native
from voxel_fake import SIZE, SPAN, Voxelization

Tensor = torch.Tensor
pytestmark = pytest.mark.skipif(bool(_native.why_unavailable()), reason="no library")
FORM = voxel_forms.FORMS[0]
NAN, INF = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in, whose code is made the known one."""
    module = ModuleType(voxel_fake.MODULE)
    module.Voxelization = Voxelization  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, voxel_fake.MODULE, module)
    digest = detection._digest(FORM, Voxelization, vars(voxel_fake))
    monkeypatch.setattr(detection, "FORMS", (dataclasses.replace(FORM, digests=(digest,)),))


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Grids of any size are taken, since the ones of tests are small."""
    monkeypatch.setattr(voxel_forms, "CELLS_A_POINT", 0)
    with swin_stand_in.job(detection.install):
        yield


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clouds are taken for those of a GPU, where no library computes them."""
    monkeypatch.setattr(voxel_forms, "_on_gpu", lambda _: True)
    monkeypatch.setattr(voxel_fake.ext_module, "of_gpu", True)
    monkeypatch.setattr(_native, "call", None)


def cloud(seed: int, count: int = 40, columns: int = 4) -> Tensor:
    """Points in and around the range, some on the sides of voxels, some nowhere."""
    draw = torch.Generator().manual_seed(seed)
    points = torch.rand(count, columns, generator=draw) * 6 - 3
    points[::3] = (points[::3] * 2).round() / 2
    points[1::11, seed % 3] = (NAN, INF, -INF, 3e9, -1e30)[seed % 5]
    return points


def said() -> dict[str, Any]:
    (seen,) = reports.OPERATORS.status().seen
    return dict(seen)


def original(layer: Any, points: Tensor) -> Any:
    return inspect.unwrap(Voxelization.forward)(layer, points)


def assert_same(ours: Any, theirs: Any) -> None:
    assert type(ours) is tuple and len(ours) == len(theirs) == 3
    for one, other in zip(ours, theirs):
        assert (one.dtype, one.stride()) == (other.dtype, other.stride())
        assert one.grad_fn is None and not one.requires_grad
        bits = [each.contiguous().view(torch.int32) for each in (one, other)]
        assert torch.equal(*bits), "NaN and the sign of 0 are kept, too"


def check_clouds() -> None:
    number = 0
    for seed in range(60):
        layer = Voxelization(
            max_num_points=(1, 2, 5)[seed % 3], max_voxels=((3, 7), 20000, (50, 1))[seed // 3 % 3]
        )
        layer.train(seed % 2 == 0)
        points = cloud(seed, 1 + seed, 3 + seed % 4)
        ours = layer(points)
        assert_same(ours, original(layer, points))
        number += len(ours[0])
    assert said()["computed"] == 60 and number > 300


def test_it_is_the_original(patched: None) -> None:
    check_clouds()
    assert f"on for {voxel_fake.MODULE}.Voxelization: 60 calls" in explain.explain()


def test_it_is_the_kernel_for_gpus(gpu: None, patched: None) -> None:
    """A point with NaN is in the first cell there. On the CPU it is nowhere."""
    check_clouds()
    point = torch.tensor([[NAN, 0.0, 0.0]])
    assert Voxelization()(point)[1].tolist() == [[0, 2, 0]]


def test_nan_is_nowhere_on_the_cpu(patched: None) -> None:
    found = Voxelization()(torch.tensor([[NAN, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    assert found[1].tolist() == [[0, 2, 4]] and said()["computed"] == 1


@pytest.mark.parametrize("on_gpu", [False, True])
def test_clouds_in_other_layouts(on_gpu: bool, request: pytest.FixtureRequest) -> None:
    for name in ("gpu", "patched") if on_gpu else ("patched",):
        request.getfixturevalue(name)
    layer, points = Voxelization(), cloud(5)
    wanted = original(layer, points)
    wide = torch.cat((points, points), 1)
    for same in (points.t().contiguous().t(), wide[:, :4], torch.cat((points, points))[:40]):
        assert_same(layer(same), wanted)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_same(layer(points), wanted)
    with torch.no_grad():
        assert_same(layer(input=points), wanted)
    assert said()["computed"] == 5 and said()["left"] == 0


def test_hooks_of_the_layer_are_called(patched: None) -> None:
    layer, seen = Voxelization(), []
    layer.register_forward_hook(lambda module, given, found: seen.append(len(found)))
    layer(cloud(1))
    assert seen == [3] and said()["computed"] == 1


def test_small_grids_on_a_cpu_are_left() -> None:
    """The table of the whole grid is quicker there: 64 cells of the stand-in's."""
    least = voxel_forms.CELLS_A_POINT
    with swin_stand_in.job(detection.install):
        layer = Voxelization()
        layer(cloud(1, 64 // least + 1))
        assert said()["computed"] == 0 and "a grid so small" in said()["reason"]
        layer(cloud(1, 64 // least))
        assert said()["computed"] == 1


def left(reason: str, layer: Any, points: Any) -> Any:
    before = said()
    found = layer(points)
    after = said()
    assert reason in after["reason"], after["reason"]
    assert (after["computed"], after["left"]) == (before["computed"], before["left"] + 1)
    return found


def test_calls_that_are_left(patched: None) -> None:
    points = cloud(1)
    cells = left("dynamic voxelisation", Voxelization(max_num_points=-1), points)
    assert cells.shape == (40, 3)
    left("dynamic voxelisation", Voxelization(max_voxels=(5, -1)).eval(), points)
    assert len(Voxelization(max_voxels=(5, -1))(points)[0]) == 5
    left("a cloud without points", Voxelization(), points[:0])
    left("a tensor of float64", Voxelization(), points.double())
    left("a tensor of float16", Voxelization(), points.half())
    left("a tensor with a gradient", Voxelization(), points.clone().requires_grad_())
    left("a Parameter in place", Voxelization(), torch.nn.Parameter(points, requires_grad=False))
    assert said()["computed"] == 1
    with pytest.raises(RuntimeError, match="no such kernel"):
        left("", Voxelization(deterministic=False), points)
    assert "deterministic is off" in said()["reason"]


def test_another_order_is_left_on_gpus(gpu: None, patched: None) -> None:
    left("deterministic is off", Voxelization(deterministic=False), cloud(1))


def test_what_the_operator_refuses_is_left(
    gpu: None, patched: None, capfd: pytest.CaptureFixture[str]
) -> None:
    """A range without a voxel is no error of mmcv's."""
    none = Voxelization(point_cloud_range=(0.0, 0.0, 0.0, 0.1, 0.1, 0.1))
    found = left("the operator refuses it: ValueError", none, cloud(1))
    assert len(found[0]) == 0
    assert "point_range is 0 to 0.1 along x" in capfd.readouterr().err


def test_a_range_that_is_refused_on_a_cpu(patched: None) -> None:
    none = Voxelization(point_cloud_range=(0.0, 0.0, 0.0, 0.1, 0.1, 0.1))
    assert len(left("ValueError while the call was read", none, cloud(1))[0]) == 0


def test_classes_that_are_left(patched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(Voxelization):
        def forward(self, input: Tensor) -> Any:
            return super().forward(input)

    class Same(Voxelization):
        pass

    points = cloud(1)
    left("a subclass with a forward of its own", Own(), points)
    assert_same(Same()(points), original(Same(), points))
    assert said()["computed"] == 1
    other = Voxelization()
    del other.deterministic
    with pytest.raises(AttributeError):
        other(points)
    assert "an object of another make" in said()["reason"]
    with monkeypatch.context() as patch:
        patch.setattr(voxel_fake, "voxelization", lambda *args: args)
        left("a function that the program has replaced", Voxelization(), points)


def test_without_the_library(patched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's operations are slower than mmcv's loop on a CPU."""
    monkeypatch.setattr(_native, "why_unavailable", lambda: "no file")
    left("nothing computes it on cpu: no file", Voxelization(), cloud(1))


def test_steps_without_it_and_its_end(patched: None) -> None:
    """The trial switches it with all operators of the program, and may roll it back."""
    change, layer, points = operators_trial.Operators(), Voxelization(), cloud(1)
    wanted = layer(points)
    change.use(False)
    assert_same(left("steps of the trial without it", layer, points), wanted)
    change.use(True)
    assert_same(layer(points), wanted)
    assert said()["computed"] == 2
    verdict = type("Verdict", (), {"kept": False, "gain": None, "reason": "-9 %"})
    change.judged("", verdict, "")
    assert_same(left("rolled back: -9 %", layer, points), wanted)
    assert said()["state"] == "off"
    operators.uninstall()
    assert not hasattr(Voxelization.forward, "__wrapped__")


@pytest.mark.parametrize(
    "variables", [{"PACELINE_OPERATORS": "Disabled"}, {"PACELINE_NUMERICS": "Bitwise"}]
)
def test_not_asked_for(variables: dict[str, str]) -> None:
    before = Voxelization.forward
    with swin_stand_in.job(detection.install, **variables):
        assert Voxelization.forward is before
        assert reports.OPERATORS.status().switch.startswith("off (PACELINE_")


def test_other_code_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the class of a release that is not known."""
    before = Voxelization.forward
    monkeypatch.setattr(detection, "FORMS", (FORM,))
    with swin_stand_in.job(detection.install):
        assert Voxelization.forward is before
        assert said()["reason"] == "its code is not that of mmcv 1.5.0 to 2.2.0"


def test_other_arguments_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    class Voxelization(torch.nn.Module):
        def forward(self, points: Tensor, batch: int) -> Any:
            return points

    before = Voxelization.forward
    monkeypatch.setattr(sys.modules[voxel_fake.MODULE], "Voxelization", Voxelization)
    with swin_stand_in.job(detection.install):
        assert Voxelization.forward is before
        assert said()["reason"] == "its forward has the arguments points, batch"


@pytest.mark.skipif(not hasattr(torch, "_disable_dynamo"), reason="PyTorch before 2.1")
def test_within_a_compiled_function(patched: None) -> None:
    layer, points = Voxelization(), cloud(1)
    compiled = torch.compile(lambda given: layer(given * 1)[0] * 2, backend="eager")
    torch._dynamo.reset()
    assert torch.equal(compiled(points).nan_to_num(), (layer(points)[0] * 2).nan_to_num())
    assert said()["computed"] == 2


def test_settings_of_tests_are_the_stand_ins() -> None:
    assert [round((SPAN[3 + i] - SPAN[i]) / SIZE[i]) for i in range(3)] == [8, 4, 2]
