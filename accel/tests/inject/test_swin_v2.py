# SPDX-License-Identifier: Apache-2.0
"""Cosine attention of Swin V2 models is the operator's where everything about a call is known, and
the library's where anything is not.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

import pytest
import swin_stand_in
import swin_v2_fakes
import torch
from paceline._core import reports
from programs import ROOT, Train

Tensor = torch.Tensor
HALVES = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 1)
CLASSES = tuple(swin_v2_fakes.LIBRARIES.values())


@pytest.fixture(autouse=True)
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in swin_v2_fakes.LIBRARIES.items():
        module = ModuleType(name)
        setattr(module, kind.__name__, kind)
        monkeypatch.setitem(sys.modules, name, module)


def made(kind: Any, **more: Any) -> torch.nn.Module:
    torch.manual_seed(1)
    return kind(**more)


def given() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    # Small enough that a mask which is added once in place of two times is seen.
    mask = (torch.rand(3, 9, 9, generator=generator) < 0.3) * -1.5
    return torch.randn(6, 9, 16, generator=generator), mask


def result_of(module: Any, *args: Any, **kwargs: Any) -> Tensor:
    result = module(*(args or given()), **kwargs)
    return result[0] if isinstance(result, tuple) else result


def trained(module: Any, *args: Any) -> list[Tensor]:
    x = args[0].clone().requires_grad_()
    result = result_of(module, x, *args[1:])
    (result * torch.linspace(-1, 1, result.numel()).view_as(result)).sum().backward()
    found = [result.detach(), x.grad, *(p.grad.clone() for p in module.parameters())]
    module.zero_grad()
    return found


def reasons() -> str:
    return "; ".join(each["reason"] for each in reports.OPERATORS.status().seen)


@pytest.mark.parametrize(
    "kind",
    [
        *CLASSES,
        functools.partial(swin_v2_fakes.WindowAttention, bias=False),
        functools.partial(swin_v2_fakes.WindowAttention, separate=True),
    ],
)
@pytest.mark.parametrize("with_mask", [True, False])
def test_the_same_outputs_and_gradients(kind: Any, with_mask: bool) -> None:
    module = made(kind).double()
    args = [each.double() for each in given()[: 1 + with_mask]]
    theirs = trained(module, *args)
    with swin_stand_in.installed() as operator:
        ours = trained(module, *args)
        assert operator.calls == 1 and operator.masks == with_mask
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", CLASSES)
def test_dropout_of_attention(kind: Any) -> None:
    module = made(kind, drop=0.5)
    with swin_stand_in.installed() as operator:
        result_of(module)
        assert operator.calls == 0 and "dropout of attention" in reasons()
        result_of(module.eval())
        assert operator.calls == 1


def test_attention_weights() -> None:
    module = made(swin_v2_fakes.Swinv2SelfAttention)
    with swin_stand_in.installed() as operator:
        assert module(*given(), output_attentions=True)[1] == "weights"
        assert operator.calls == 0 and "attention weights are asked for" in reasons()


@pytest.mark.parametrize("kind", CLASSES)
def test_modules_of_another_make(kind: Any) -> None:
    with swin_stand_in.installed() as operator:
        module = made(kind)
        module.logit_scale.data = torch.ones(1, 1, 1)
        result_of(module)
        assert "a scale for another number of heads" in reasons()
        module = made(kind)
        module.temperature = torch.nn.Parameter(torch.ones(1))
        result_of(module)
        assert "parameters that this release does not know" in reasons()
        module = made(kind)
        module.q_norm = torch.nn.LayerNorm(8)
        result_of(module)
        assert "submodules that this release does not know" in reasons()
        assert operator.calls == 0


@pytest.mark.parametrize("kind", CLASSES)
def test_a_network_that_makes_another_table(kind: Any) -> None:
    module = made(kind)
    name = next(name for name, _ in module.named_children() if name.endswith("mlp"))

    class Longer(torch.nn.Module):
        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x).repeat(2, 1, 1, 1)

    setattr(module, name, Longer(getattr(module, name)))
    theirs = result_of(module)
    with swin_stand_in.installed() as operator:
        assert torch.equal(result_of(module), theirs)
        assert operator.calls == 0 and "the operator refuses it: ValueError" in reasons()


@pytest.mark.skipif(not HALVES, reason="no products of halves on the CPU")
def test_the_kernels_compute_what_the_class_does_in_double(
    train_by_fork: Train, fake_device: dict[str, str]
) -> None:
    """The fake driver runs the kernels' source. Their module takes halves that lie on the CPU."""
    result = train_by_fork(
        f"import sys; sys.path.insert(0, {str(ROOT / 'accel/tests/inject')!r})"
        + """
import copy, ctypes, types
fake = ctypes.CDLL(os.environ["FAKE"], mode=ctypes.RTLD_GLOBAL)
fake.fake_cuda_log.restype = ctypes.c_char_p
import swin_fakes, swin_v2_fakes
from paceline._inject import operators, swin
from paceline.ops import _device, _window, _window_kernels

_device.stream_of = lambda device: 77
_window_kernels.multiprocessors = lambda index: 2
torch.set_num_threads(1)
kinds = {
    **swin_v2_fakes.LIBRARIES,
    "timm.models.swin_transformer": swin_fakes.WindowAttention,
    "mmdet.models.backbones.swin": swin_fakes.WindowMSA,
}
for name, kind in kinds.items():
    library = types.ModuleType(name)
    setattr(library, kind.__name__, kind)
    swin._patch(library)  # as the import of the library does

def trained(module, x, mask):
    x = x.to(next(module.parameters()).dtype).requires_grad_()
    out = module(x, mask)
    out = out[0] if isinstance(out, tuple) else out
    out.backward(torch.linspace(-1, 1, out.numel()).view_as(out).to(out.dtype))
    return [out.detach(), x.grad, *(each.grad for each in module.parameters())]

generator = torch.Generator().manual_seed(2)
x = torch.randn(4, 49, 64, generator=generator)
mask = (torch.rand(2, 49, 49, generator=generator) < 0.3) * -100.0
for name, kind in kinds.items():
    torch.manual_seed(1)
    module = kind(dim=64, side=7)
    double = copy.deepcopy(module.half()).double()
    wanted = trained(double, x.half(), mask.double())
    _device.KIND = "cpu"
    fake.fake_cuda_forget()
    found = trained(module, x.half(), mask)
    launched = fake.fake_cuda_log().decode().count("cuLaunchKernel")
    _device.KIND = "cuda"
    assert launched == 4, (name, launched, [each.told() for each in operators.classes])
    for one, other in zip(found, wanted):
        error = (one.double() - other).abs().max()
        assert error <= 0.02 * other.abs().max(), (name, error, other.abs().max())
print("reached the end")
""",
        **{**fake_device, "PACELINE_OPERATORS": "Auto"},
    )
    assert result.code == 0, result.output
    assert "reached the end" in result.output, result.output
