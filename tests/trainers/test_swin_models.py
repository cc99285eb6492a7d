# SPDX-License-Identifier: Apache-2.0
"""Swin models of timm, torchvision and Transformers whose window attention is the operator's: they
compute what they compute alone. A stand-in in plain PyTorch takes the place of the GPU's kernels.
"""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import swin_stand_in
import torch
from paceline._core import reports
from paceline._inject import operators
from swin_training import LAYERS, SIDE, assert_attends, assert_near, images, made, output, trained
from torch.utils.checkpoint import checkpoint

Tensor = torch.Tensor


def of_timm(**more: Any) -> torch.nn.Module:
    swin_transformer = pytest.importorskip("timm.models.swin_transformer")
    return swin_transformer.SwinTransformer(
        patch_size=4,
        embed_dim=16,
        depths=(2, 2),
        num_heads=(2, 4),
        num_classes=5,
        **{"img_size": SIDE, "drop_path_rate": 0.0, **more},
    )


def of_torchvision(**more: Any) -> torch.nn.Module:
    swin_transformer = pytest.importorskip("torchvision.models.swin_transformer")
    return swin_transformer.SwinTransformer(
        patch_size=[4, 4],
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=[7, 7],
        num_classes=5,
        **{"stochastic_depth_prob": 0.0, **more},
    )


def of_transformers(kind: str = "", **more: Any) -> torch.nn.Module:
    modeling_swin = pytest.importorskip("transformers.models.swin.modeling_swin")
    config = modeling_swin.SwinConfig(
        image_size=SIDE,
        patch_size=4,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=7,
        num_labels=5,
        **{"drop_path_rate": 0.0, **more},
    )
    if kind:
        config._attn_implementation = kind
    return modeling_swin.SwinForImageClassification(config)


def of_donut() -> torch.nn.Module:
    donut = pytest.importorskip("transformers.models.donut.modeling_donut_swin")
    config = donut.DonutSwinConfig(
        image_size=SIDE,
        patch_size=4,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=7,
        drop_path_rate=0.0,
    )
    return donut.DonutSwinModel(config)


def of_maskformer() -> torch.nn.Module:
    maskformer = pytest.importorskip("transformers.models.maskformer.modeling_maskformer_swin")
    config = maskformer.MaskFormerSwinConfig(
        image_size=SIDE,
        patch_size=4,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=7,
        drop_path_rate=0.0,
    )
    return maskformer.MaskFormerSwinModel(config)


MODELS = (of_timm, of_torchvision, of_transformers)
ALL = (*MODELS, of_donut, of_maskformer)


@pytest.mark.parametrize("model", ALL)
@pytest.mark.parametrize("training", [True, False])
def test_the_same_outputs_and_gradients(model: Any, training: bool) -> None:
    status = assert_attends(made(model).train(training), images())
    acting = [each for each in status.seen if each["state"] == "on"]
    assert [each["text"] for each in acting] == [f"{LAYERS} calls computed, class Reordered"]


@pytest.mark.parametrize("size", [(64, 48), (60, 28), (28, 60), (20, 100)])
def test_padded_images_and_shifts_along_one_side(size: tuple[int, int]) -> None:
    assert_attends(made(of_torchvision), images(*size))


@pytest.mark.parametrize("model", MODELS)
def test_images_of_another_size(model: Any) -> None:
    more = {"img_size": (112, 84), "strict_img_size": False} if model is of_timm else {}
    built = made(model, **more)
    theirs = trained(built, images(112, 84))
    with swin_stand_in.installed() as operator:
        assert_near(trained(built, images(112, 84)), theirs)
        assert operator.calls == LAYERS and operator.masks >= 1


@pytest.mark.parametrize("model", MODELS)
def test_autocast(model: Any) -> None:
    built = made(model)
    with torch.autocast("cpu", torch.bfloat16):
        theirs = output(built, images())
        with swin_stand_in.installed() as operator:
            ours = output(built, images())
            assert operator.calls == LAYERS and ours.dtype == theirs.dtype
    torch.testing.assert_close(ours.float(), theirs.float(), rtol=0.05, atol=0.1)


@pytest.mark.parametrize(
    "model,more,reason",
    [
        (of_timm, {"attn_drop_rate": 0.1}, "dropout of attention"),
        (of_torchvision, {"attention_dropout": 0.1}, "dropout of attention"),
        (of_transformers, {"attention_probs_dropout_prob": 0.1}, "dropout of attention"),
        (of_transformers, {"kind": "eager"}, "attention of the kind 'eager'"),
    ],
)
def test_what_is_left_to_the_library(model: Any, more: dict[str, Any], reason: str) -> None:
    built = made(model, **more)
    torch.manual_seed(6)
    theirs = trained(built, images())
    with swin_stand_in.installed() as operator:
        torch.manual_seed(6)
        ours = trained(built, images())
        assert operator.calls == 0
        assert reason in reports.OPERATORS.status().switch
        if "dropout" in reason:
            output(built.eval(), images())
            assert operator.calls == LAYERS, "without training there is no dropout"
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_attention_weights_are_still_returned() -> None:
    built = made(of_transformers, kind="eager").eval()
    with swin_stand_in.installed() as operator:
        weights = built(images(), output_attentions=True).attentions
        assert operator.calls == 0 and weights[0].shape[-2:] == (49, 49)


@pytest.mark.parametrize("model", MODELS)
def test_no_kernel_for_these_tensors(model: Any) -> None:
    built = made(model)
    seen = []
    first = next(each for each in built.modules() if isinstance(each, torch.nn.LayerNorm))
    first.register_forward_hook(lambda *_: seen.append(1))
    theirs = trained(built, images())
    with swin_stand_in.installed() as operator:
        operator.allowed = False
        ours = trained(built, images())
        assert operator.calls == 0 and len(seen) == 2
        assert "no kernel for float32 on cpu, windows of 49, 8" in reports.OPERATORS.status().switch
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("model", MODELS)
def test_an_error_of_the_operator(model: Any, capfd: Any) -> None:
    built = made(model)
    theirs = trained(built, images())
    with swin_stand_in.installed() as operator:
        operator.error = ValueError("no such thing")
        ours = trained(built, images())
        trained(built, images())
        said = capfd.readouterr().err.splitlines()
        assert [line.count("ValueError: no such thing") for line in said] == [1]
        operator.error = torch.cuda.OutOfMemoryError("out of memory")
        with pytest.raises(torch.cuda.OutOfMemoryError):
            trained(built, images(112, 112)) if model is not of_timm else operator_alone(built)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def operator_alone(built: Any) -> None:
    attention = built.layers[0].blocks[0].attn
    attention(torch.randn(3, 49, 16))


@pytest.mark.parametrize("model", MODELS)
def test_objects_stay_the_librarys(model: Any) -> None:
    built = made(model)
    keys = list(built.state_dict())
    with swin_stand_in.installed() as operator:
        expected = output(built, images())
        assert list(built.state_dict()) == keys
        for other in (copy.deepcopy(built), pickle.loads(pickle.dumps(built))):
            assert torch.equal(output(other, images()), expected)
        saved = io.BytesIO()
        torch.save(built.state_dict(), saved)
        assert operator.calls == 3 * LAYERS
        assert operator.asked <= 3, "once for each kind of call"
        pickled = pickle.dumps(built)
    assert b"paceline" not in pickled and b"paceline" not in saved.getvalue()
    torch.testing.assert_close(output(pickle.loads(pickled), images()), expected)


@pytest.mark.parametrize("model", (of_timm, of_torchvision))
def test_script_and_trace(model: Any) -> None:
    built = made(model).eval()
    theirs = output(built, images())
    with swin_stand_in.installed() as operator:
        scripted = torch.jit.script(built)
        traced = torch.jit.trace(built, images(), check_trace=False)
        for other in (scripted, traced):
            torch.testing.assert_close(other(images()), theirs)
        assert operator.calls == 0


@pytest.mark.parametrize("model", (of_timm, of_torchvision))
def test_fx(model: Any) -> None:
    built = made(model).eval()
    with swin_stand_in.installed() as operator:
        if model is of_timm:
            features = pytest.importorskip("timm.models._features_fx")
            traced = features.create_feature_extractor(built, ["norm"])
        else:
            extraction = pytest.importorskip("torchvision.models.feature_extraction")
            traced = extraction.create_feature_extractor(built, ["head"])
        traced(images())
        assert operator.calls == 0, "what is traced is the library's"


@pytest.mark.parametrize("model", MODELS)
def test_compiled(model: Any) -> None:
    built = made(model).eval()
    theirs = output(built, images())
    with swin_stand_in.installed() as operator, torch.no_grad():
        compiled = torch.compile(built, backend="eager")
        torch.testing.assert_close(output(compiled, images()), theirs, rtol=1e-5, atol=1e-5)
        assert operator.calls == 0
        output(built, images())
        assert operator.calls == LAYERS, "the model itself is not compiled"


class Checkpointed(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module, reentrant: bool) -> None:
        super().__init__()
        self.inner, self.reentrant = inner, reentrant

    def forward(self, batch: Tensor) -> Tensor:
        return checkpoint(lambda x: output(self.inner, x), batch, use_reentrant=self.reentrant)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("idle", ["", "steps without"])
def test_a_trial_that_switches_within_a_checkpointed_step(
    model: Any, reentrant: bool, idle: str
) -> None:
    """As where one optimizer's step lies between forward and backward of another's loss."""
    built = made(model)
    theirs = trained(built, images())
    with swin_stand_in.installed() as operator:
        operators.trial.idle = idle
        batch = images().requires_grad_()
        result = Checkpointed(built, reentrant)(batch)
        operators.trial.idle = "" if idle else "steps without"
        (result * torch.linspace(-1, 1, result.numel()).view_as(result)).sum().backward()
        assert operator.calls == (0 if idle else 2 * LAYERS)
    assert_near([result.detach(), batch.grad], theirs[:2])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_under_a_mode(model: Any, reentrant: bool) -> None:
    """What a forward pass under a mode saves, the second pass without it must save again."""
    from torch.utils.flop_counter import FlopCounterMode

    built = made(model)
    theirs = trained(built, images())

    with swin_stand_in.installed() as operator:
        assert_near(trained(Checkpointed(built, reentrant), images()), theirs)
        assert operator.calls == 2 * LAYERS
        batch = images().requires_grad_()
        with FlopCounterMode(display=False):
            result = Checkpointed(built, reentrant)(batch)
        result.sum().backward()
        built.zero_grad()
        assert operator.calls == 2 * LAYERS
        assert_near(trained(Checkpointed(built, reentrant), images()), theirs)
        assert operator.calls == 4 * LAYERS
