# SPDX-License-Identifier: Apache-2.0
"""Window attention of Swin models is the operator's where everything about a call is known, and the
library's where anything is not.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import swin_fakes
import swin_stand_in
import torch
from paceline._core import effects, explain, reports
from paceline._inject import operators

Tensor = torch.Tensor

CLASSES = (
    swin_fakes.WindowMSA,
    swin_fakes.WindowAttention,
    swin_fakes.ShiftedWindowAttention,
    swin_fakes.SwinSelfAttention,
    swin_fakes.SwinAttention,
)
NEW = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 1)


@pytest.fixture(autouse=True)
def libraries(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    modules = {}
    for name, classes in swin_fakes.LIBRARIES.items():
        module = modules[name] = ModuleType(name)
        for each in classes:
            setattr(module, swin_fakes.NAMES.get(each, each.__name__), each)
        monkeypatch.setitem(sys.modules, name, module)
    return modules


def made(kind: Callable[..., torch.nn.Module], **more: Any) -> torch.nn.Module:
    torch.manual_seed(1)
    return kind(**more)


def given(module: Any) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(2)
    if isinstance(module, swin_fakes.ShiftedWindowAttention):
        return (torch.randn(2, 7, 9, 16, generator=generator),)
    mask = (torch.rand(3, 9, 9, generator=generator) < 0.3) * -100.0
    return torch.randn(6, 9, 16, generator=generator), mask


def result_of(module: Any, *args: Any, **kwargs: Any) -> Tensor:
    result = module(*(args or given(module)), **kwargs)
    return result[0] if isinstance(result, tuple) else result


def trained(module: Any, *args: Any) -> list[Tensor]:
    result = result_of(module, *args)
    (result * torch.linspace(-1, 1, result.numel()).view_as(result)).sum().backward()
    found = [result.detach(), *(p.grad.clone() for p in module.parameters())]
    module.zero_grad()
    return found


def said_of(module: Any) -> dict[str, Any]:
    name = swin_fakes.NAMES.get(type(module), type(module).__name__)
    return next(each for each in reports.OPERATORS.status().seen if each["name"].endswith(name))


def assert_left(
    operator: swin_stand_in.Operator, module: Any, reason: str, *args: Any, **kwargs: Any
) -> None:
    """Calls it, and looks who has computed."""
    before = operator.calls
    result_of(module, *args, **kwargs)
    assert operator.calls == before
    kind = next(each for each in CLASSES if isinstance(module, each))
    assert reason in said_of(kind())["reason"]


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("with_mask", [True, False])
def test_the_same_outputs_and_gradients(kind: Any, with_mask: bool) -> None:
    module = made(kind)
    args = given(module)[: 1 + with_mask]
    theirs = trained(module, *args)
    with swin_stand_in.installed() as operator:
        ours = trained(module, *args)
        assert operator.calls == 1
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_keywords() -> None:
    module = made(swin_fakes.WindowAttention)
    x, mask = given(module)
    with swin_stand_in.installed() as operator:
        expected = module(x, mask)
        assert torch.equal(module(x=x, mask=mask), expected)
        assert operator.calls == 2 and operator.masks == 2
        for wrong in ({"other": 1}, {"x": x}):
            with pytest.raises(TypeError, match=next(iter(wrong))):
                module(x, mask, **wrong)
        with pytest.raises(TypeError):
            module(x, mask, None, None)
        late = made(swin_fakes.SwinAttention)
        late(x, attention_mask=mask, num_items_in_batch=3, output_attentions=False)
        assert operator.calls == 3
        assert_left(operator, late, "head_mask, an argument that", x, head_mask=None)
        assert_left(operator, late, "attention weights", x, output_attentions=True)


@pytest.mark.parametrize("kind", CLASSES)
def test_dropout_of_attention(kind: Any) -> None:
    module = made(kind, drop=0.5)
    with swin_stand_in.installed() as operator:
        assert_left(operator, module, "dropout of attention")
        result_of(module.eval())
        assert operator.calls == 1


@pytest.mark.parametrize(
    ("kind", "name"),
    [(swin_fakes.WindowAttention, "attn_drop"), (swin_fakes.SwinSelfAttention, "dropout")],
)
def test_dropout_that_is_turned_on_by_itself(kind: Any, name: str) -> None:
    module = made(kind, drop=0.5).eval()
    getattr(module, name).train()
    with swin_stand_in.installed() as operator:
        assert_left(operator, module, "dropout of attention")


@pytest.mark.parametrize("kind", CLASSES)
def test_a_subclass_that_overrides_what_is_called(kind: Any) -> None:
    class Forward(kind):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return super().forward(*args, **kwargs)

    class Other(kind):
        pass

    with swin_stand_in.installed() as operator:
        assert_left(operator, made(Forward), "a subclass with a forward of its own")
        result_of(made(Other))
        assert operator.calls == 1, "it overrides nothing"


def test_a_subclass_with_another_bias() -> None:
    class Bias(swin_fakes.WindowAttention):
        def _get_rel_pos_bias(self) -> Tensor:
            return super()._get_rel_pos_bias().mul(2)

    with swin_stand_in.installed() as operator:
        assert_left(operator, made(Bias), "a _get_rel_pos_bias of its own")


def test_modules_of_another_make() -> None:
    with swin_stand_in.installed() as operator:
        module = made(swin_fakes.WindowAttention)
        module.q_norm = torch.nn.LayerNorm(8)
        assert_left(operator, module, "submodules that this release does not know")
        module = made(swin_fakes.WindowAttention)
        module.attn_drop = torch.nn.Identity()
        assert_left(operator, module, "a attn_drop of another kind")
        module = made(swin_fakes.WindowAttention)
        module.temperature = torch.nn.Parameter(torch.ones(1))
        assert_left(operator, module, "parameters that this release does not know")
        module = made(swin_fakes.WindowAttention)
        x, mask = given(module)
        assert_left(operator, module, "a mask that is learned", x, mask.clone().requires_grad_())
        assert_left(operator, module, "a mask of another shape", x, mask[:, :1])
        del module.qkv.out_features
        assert_left(operator, module, "of another make: ")
        self_attention = made(swin_fakes.SwinSelfAttention)
        assert_left(operator, self_attention, "a mask of heads", x, head_mask=torch.ones(()))
        assert_left(operator, self_attention, "weights are asked", x, output_attentions=True)
        late = made(swin_fakes.SwinAttention)
        late.config._attn_implementation = "eager"
        assert_left(operator, late, "attention of the kind 'eager'")


def test_replaced_functions_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted_window_attention(module: Any, x: Tensor) -> Tensor:
        return x

    def get_interface(name: str, default: Any) -> Any:
        return shifted_window_attention

    monkeypatch.setattr(swin_fakes, "shifted_window_attention", shifted_window_attention)
    monkeypatch.setattr(swin_fakes.ALL_ATTENTION_FUNCTIONS, "get_interface", get_interface)
    with swin_stand_in.installed() as operator:
        whole = made(swin_fakes.ShiftedWindowAttention)
        assert_left(operator, whole, "that the program has replaced")
        assert_left(operator, made(swin_fakes.SwinAttention), "that the program has replaced")


def test_what_the_program_replaces_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros(module: Any) -> Tensor:
        return torch.zeros(1, 9, 9)

    with swin_stand_in.installed() as operator:
        module = made(swin_fakes.WindowAttention)
        module.fused_attn = True
        late = made(swin_fakes.SwinAttention)
        result_of(module)
        result_of(late)
        assert operator.calls == 2
        with monkeypatch.context() as patch:
            patch.setattr(torch.nn.functional, "scaled_dot_product_attention", zeros, raising=False)
            assert_left(operator, module, "an attention that the program has replaced")
            assert_left(operator, late, "an attention that the program has replaced")
        with monkeypatch.context() as patch:
            patch.setattr(swin_fakes.WindowAttention, "_get_rel_pos_bias", zeros)
            assert_left(operator, module, "a _get_rel_pos_bias of its own")
        holder = type(late.relative_position_bias)
        forward = holder.forward
        with monkeypatch.context() as patch:
            patch.setattr(holder, "forward", lambda *args: forward(*args))
            assert_left(operator, late, "a relative_position_bias of another kind")


@pytest.mark.parametrize("name", ["attn_drop", "softmax"])
def test_hooks_on_what_is_skipped(name: str) -> None:
    module = made(swin_fakes.WindowAttention)
    seen: list[Any] = []
    handle = getattr(module, name).register_forward_hook(lambda *_: seen.append(1))
    with swin_stand_in.installed() as operator:
        assert_left(operator, module, f"a hook on {name}")
        handle.remove()
        module.qkv.register_forward_hook(lambda *_: seen.append(2))
        module.proj.register_forward_hook(lambda *_: seen.append(3))
        result_of(module)
        assert operator.calls == 1 and seen == [1, 2, 3]
        everywhere = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
        try:
            assert_left(operator, module, "hooks on all modules")
        finally:
            everywhere.remove()


@pytest.mark.skipif(not NEW, reason="no torch.func")
def test_modes_and_transforms() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    module = made(swin_fakes.WindowAttention)
    x, _ = given(module)
    with swin_stand_in.installed() as operator:
        with Watch():
            assert_left(operator, module, "a mode that looks at every operation")
        torch.func.jvp(module, (x,), (x,))
        torch.func.vmap(module)(x[None])
        assert operator.calls == 0
        assert "torch.func" in said_of(module)["reason"]


@pytest.mark.skipif(not NEW, reason="no torch.func")
def test_a_transform_within_a_backward_pass() -> None:
    module = made(swin_fakes.WindowAttention)

    class Implicit(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return torch.func.vjp(module, x)[1](grad)[0]

    x = given(module)[0].requires_grad_()
    with swin_stand_in.installed() as operator:
        Implicit.apply(x).sum().backward()
        assert operator.calls == 0 and x.grad is not None


@pytest.mark.skipif(not NEW, reason="no modes that can be asked for")
def test_modes_of_functions() -> None:
    from torch.overrides import TorchFunctionMode

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    module = made(swin_fakes.WindowAttention)
    with swin_stand_in.installed() as operator:
        with torch.device("cpu"):
            result_of(module)
        assert operator.calls == 1
        with Watch():
            assert_left(operator, module, "a mode that looks at every operation")


def test_where_there_are_no_kernels_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    module = made(swin_fakes.WindowAttention)
    with swin_stand_in.installed() as operator:
        from paceline.ops import _window

        monkeypatch.setattr(_window, "serves", lambda *_: False)
        assert_left(operator, module, "no kernel for float32 on cpu")
        assert operator.asked == 0


def test_scripts_and_traces_have_the_original() -> None:
    module = made(swin_fakes.WindowAttention).eval()
    args = given(module)
    theirs = module(*args)
    with swin_stand_in.installed() as operator:
        torch.testing.assert_close(torch.jit.script(module)(*args), theirs)
        torch.testing.assert_close(torch.jit.trace(module, args, check_trace=False)(*args), theirs)
        assert operator.calls == 0


def test_objects_are_not_touched() -> None:
    module = made(swin_fakes.WindowAttention)
    before, original = copy.deepcopy(module.__dict__).keys(), swin_fakes.WindowAttention.forward
    with swin_stand_in.installed():
        trained(module)
        patched = swin_fakes.WindowAttention.forward
        assert patched is not original and patched.__name__ == "forward"
        assert patched.__qualname__ == original.__qualname__
        assert module.__dict__.keys() == before
        assert torch.equal(result_of(copy.deepcopy(module)), result_of(module))
    assert swin_fakes.WindowAttention.forward is original


@pytest.mark.parametrize("kind", CLASSES)
def test_no_kernel(kind: Any) -> None:
    module = made(kind)
    theirs = trained(module)
    with swin_stand_in.installed() as operator:
        operator.allowed = False
        ours = [trained(module) for _ in range(3)][-1]
        assert operator.asked == 1 and operator.calls == 0
        said = said_of(module)
        assert said["state"] == "off" and said["left"] == 3
        assert said["reason"] == "no kernel for float32 on cpu, windows of 9, 8 values a head"
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs))


def test_an_error_is_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    module = made(swin_fakes.WindowAttention)
    theirs = trained(module)
    with swin_stand_in.installed() as operator:
        operator.error = OSError("no such library")
        ours = trained(module)
        trained(module)
        line = "paceline: timm.models.swin_transformer.WindowAttention computes its own attention"
        said = f"{line}: the operator refuses it: OSError: no such library\n"
        assert capfd.readouterr().err == said
        operator.error = RuntimeError("out of memory")
        with pytest.raises(RuntimeError, match="out of memory"):
            module(given(module)[0])
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs))


def test_explain(monkeypatch: pytest.MonkeyPatch) -> None:
    # Another test of this process may have switched the trial on, which says what it waits for.
    monkeypatch.setattr(operators, "begin_trial", None)
    module = made(swin_fakes.WindowAttention)
    with swin_stand_in.installed():
        assert "fused operators: on (no call yet); " in explain.explain()
        result_of(module)
        result_of(module)
        result_of(made(swin_fakes.ShiftedWindowAttention, drop=0.1))
        told = explain.explain()
        assert (
            "fused operators: on for timm.models.swin_transformer.WindowAttention: 2 calls;"
            " numerics class Reordered\n"
            "  mmpretrain.models.utils.attention.WindowMSA: no call yet\n"
            "  timm.models.swin_transformer.WindowAttention: 2 calls computed, class Reordered\n"
            "  torchvision.models.swin_transformer.ShiftedWindowAttention: 1 by the library"
            " (dropout of attention)\n"
        ) in told
        seen = explain.as_dict()["fused operators"]["seen"]
        assert [each["state"] for each in seen] == ["waiting", "on", "off", "waiting", "waiting"]
        assert seen[1]["computed"] == 2 and seen[2]["left"] == 1
        (effect,) = (each for each in effects.found() if each["feature"] == "operators")
        assert effect["kept"] and "WindowAttention: 2 calls computed" in effect["reason"]


def test_a_job_is_not_told_of_operators_that_nothing_has_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(effects, "_told", {})
    with swin_stand_in.installed():
        assert not [each for each in effects.found() if each["feature"] == "operators"]


@pytest.mark.parametrize(
    "variables,reason",
    [
        ({"PACELINE_OPERATORS": "Disabled"}, "off (PACELINE_OPERATORS is Disabled)"),
        ({"PACELINE_OPERATORS": ""}, "off (PACELINE_OPERATORS is not set)"),
        (
            {"PACELINE_NUMERICS": "Bitwise"},
            "off (PACELINE_NUMERICS is Bitwise, and fused operators are of class Reordered)",
        ),
    ],
)
def test_not_asked_for(variables: dict[str, str], reason: str) -> None:
    original = swin_fakes.WindowAttention.forward
    with swin_stand_in.installed(**variables):
        assert swin_fakes.WindowAttention.forward is original
        assert reports.OPERATORS.status().switch == reason


def test_a_signature_that_is_not_known(libraries: dict[str, ModuleType]) -> None:
    class WindowAttention(swin_fakes.WindowAttention):
        def forward(self, x: Tensor, mask: Any = None, bias: Any = None) -> Tensor:
            return x

    libraries["timm.models.swin_transformer"].WindowAttention = WindowAttention  # type: ignore[attr-defined]
    original = WindowAttention.forward
    with swin_stand_in.installed():
        assert WindowAttention.forward is original
        told = reports.OPERATORS.status().seen[1]
        assert told["reason"] == "its forward has the arguments x, mask, bias"


def test_a_library_that_is_imported_later(
    libraries: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    folder = tmp_path / "timm" / "models"
    folder.mkdir(parents=True)
    for each in (folder.parent, folder):
        (each / "__init__.py").write_text("")
    (folder / "swin_transformer.py").write_text(
        "import swin_fakes\nclass WindowAttention(swin_fakes.WindowAttention):\n"
        "    def forward(self, x, mask=None):\n        return x\n"
    )
    for name in ("timm", "timm.models", "timm.models.swin_transformer"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with swin_stand_in.installed() as operator:
        from timm.models.swin_transformer import WindowAttention  # type: ignore[import-not-found]

        module = made(WindowAttention)
        result_of(module)
        assert operator.calls == 1
        assert operators.classes[-1].name.endswith(".WindowAttention")
    for name in ("timm", "timm.models", "timm.models.swin_transformer"):
        sys.modules.pop(name, None)
