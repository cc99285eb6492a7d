# SPDX-License-Identifier: Apache-2.0
"""Swin V2 models of timm, torchvision and Transformers whose window attention is the operator's:
they compute what they compute alone. A stand-in in plain PyTorch takes the place of the GPU's
kernels.
"""

from __future__ import annotations

from typing import Any

import pytest
import swin_stand_in
import torch
from paceline._core import reports
from swin_training import LAYERS, SIDE, assert_attends, images, made, output


def of_timm(**more: Any) -> torch.nn.Module:
    library = pytest.importorskip("timm.models.swin_transformer_v2")
    separate = more.pop("qkv_bias_separate", False)
    built = library.SwinTransformerV2(
        img_size=SIDE,
        patch_size=4,
        window_size=7,
        embed_dim=16,
        depths=(2, 2),
        num_heads=(2, 4),
        num_classes=5,
        **{"drop_path_rate": 0.0, **more},
    )
    for module in built.modules():
        if isinstance(module, library.WindowAttention):
            module.qkv_bias_separate = separate
    return built


def of_torchvision(**more: Any) -> torch.nn.Module:
    library = pytest.importorskip("torchvision.models.swin_transformer")
    return library.SwinTransformer(
        patch_size=[4, 4],
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=[7, 7],
        num_classes=5,
        block=library.SwinTransformerBlockV2,
        downsample_layer=library.PatchMergingV2,
        **{"stochastic_depth_prob": 0.0, **more},
    )


def of_transformers(**more: Any) -> torch.nn.Module:
    library = pytest.importorskip("transformers.models.swinv2.modeling_swinv2")
    config = library.Swinv2Config(
        image_size=SIDE,
        patch_size=4,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=7,
        num_labels=5,
        **{"drop_path_rate": 0.0, **more},
    )
    return library.Swinv2ForImageClassification(config)


def of_swin2sr() -> torch.nn.Module:
    library = pytest.importorskip("transformers.models.swin2sr.modeling_swin2sr")
    config = library.Swin2SRConfig(
        image_size=SIDE,
        patch_size=1,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 2],
        window_size=7,
        drop_path_rate=0.0,
    )
    return library.Swin2SRModel(config)


MODELS = (of_timm, of_torchvision, of_transformers)


@pytest.mark.parametrize("model", (*MODELS, of_swin2sr))
@pytest.mark.parametrize("training", [True, False])
def test_the_same_outputs_and_gradients(model: Any, training: bool) -> None:
    assert_attends(made(model).train(training), images())


@pytest.mark.parametrize("more", [{"qkv_bias": False}, {"qkv_bias_separate": True}])
def test_other_biases_of_timm(more: dict[str, Any]) -> None:
    assert_attends(made(of_timm, **more), images())


@pytest.mark.parametrize("size", [(64, 48), (60, 28), (28, 60), (20, 100)])
def test_padded_images_and_shifts_along_one_side(size: tuple[int, int]) -> None:
    assert_attends(made(of_torchvision), images(*size))


@pytest.mark.parametrize("model", MODELS)
def test_autocast(model: Any) -> None:
    """Ours is as near to the result in float32 as the library's."""
    built = made(model)
    exact = output(built, images())
    with torch.autocast("cpu", torch.bfloat16):
        theirs = output(built, images())
        with swin_stand_in.installed() as operator:
            ours = output(built, images())
            assert operator.calls == LAYERS and ours.dtype == theirs.dtype
    errors = [(each.float() - exact).square().mean().sqrt() for each in (ours, theirs)]
    assert errors[0] < 2 * errors[1] < 0.2 * exact.square().mean().sqrt()


@pytest.mark.parametrize(
    "model,more",
    [
        (of_timm, {"attn_drop_rate": 0.1}),
        (of_torchvision, {"attention_dropout": 0.1}),
        (of_transformers, {"attention_probs_dropout_prob": 0.1}),
    ],
)
def test_dropout_of_attention(model: Any, more: dict[str, Any]) -> None:
    built = made(model, **more)
    with swin_stand_in.installed() as operator:
        output(built, images())
        assert operator.calls == 0
        assert "dropout of attention" in reports.OPERATORS.status().switch
        output(built.eval(), images())
        assert operator.calls == LAYERS


@pytest.mark.parametrize("model", MODELS)
def test_hooks_of_the_network_of_biases(model: Any) -> None:
    built = made(model)
    seen: list[int] = []
    for name, module in built.named_modules():
        if name.endswith(("cpb_mlp", "position_bias_mlp")):
            module.register_forward_hook(lambda *_: seen.append(1))
    with swin_stand_in.installed() as operator:
        output(built, images())
        assert operator.calls == LAYERS == len(seen)


@pytest.mark.parametrize("model", MODELS)
def test_compiled(model: Any) -> None:
    built = made(model).eval()
    theirs = output(built, images())
    with swin_stand_in.installed() as operator, torch.no_grad():
        compiled = torch.compile(built, backend="eager")
        torch.testing.assert_close(output(compiled, images()), theirs, rtol=1e-5, atol=1e-5)
        assert operator.calls == 0
