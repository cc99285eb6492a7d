# SPDX-License-Identifier: Apache-2.0
"""Swin models of mmpretrain, mmdetection and mmsegmentation whose window attention is the
operator's compute what they compute alone.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import swin_stand_in
import torch
from openmmlab import library
from paceline._core import reports
from swin_training import assert_near, images, made, output, trained

LAYERS = 4
NAMES = {
    "mmpretrain": "mmpretrain.models.utils.attention.WindowMSA",
    "mmpretrain V2": "mmpretrain.models.utils.attention.WindowMSAV2",
    "mmdet": "mmdet.models.backbones.swin.WindowMSA",
    "mmseg": "mmseg.models.backbones.swin.WindowMSA",
}


def of_mmpretrain(**more: Any) -> torch.nn.Module:
    swin_transformer = library("mmpretrain.models.backbones.swin_transformer")
    attention = {"attn_drop": more.pop("attn_drop_rate", 0.0)}
    return swin_transformer.SwinTransformer(
        arch={"embed_dims": 16, "depths": (2, 2), "num_heads": (2, 4)},
        img_size=56,
        out_indices=(1,),
        drop_path_rate=0.0,
        pad_small_map=True,
        stage_cfgs={"block_cfgs": {"attn_cfgs": attention}},
        **more,
    )


def of_mmpretrain_v2(**more: Any) -> torch.nn.Module:
    swin_transformer = library("mmpretrain.models.backbones.swin_transformer_v2")
    attention = {"attn_drop": more.pop("attn_drop_rate", 0.0)}
    return swin_transformer.SwinTransformerV2(
        arch={
            "embed_dims": 16,
            "depths": (2, 2),
            "num_heads": (2, 4),
            "extra_norm_every_n_blocks": 0,
        },
        img_size=56,
        window_size=7,
        out_indices=(1,),
        drop_path_rate=0.0,
        pad_small_map=True,
        stage_cfgs={"block_cfgs": {"attn_cfgs": attention}},
        **more,
    )


def of_mmdet(name: str = "mmdet", **more: Any) -> torch.nn.Module:
    return library(f"{name}.models.backbones.swin").SwinTransformer(
        embed_dims=16,
        depths=(2, 2),
        num_heads=(2, 4),
        strides=(4, 2),
        out_indices=(1,),
        drop_path_rate=0.0,
        **more,
    )


def of_mmseg(**more: Any) -> torch.nn.Module:
    return of_mmdet("mmseg", **more)


MODELS = {
    "mmpretrain": of_mmpretrain,
    "mmpretrain V2": of_mmpretrain_v2,
    "mmdet": of_mmdet,
    "mmseg": of_mmseg,
}


def told(name: str) -> str:
    seen = reports.OPERATORS.status().seen
    return next(each["text"] for each in seen if each["name"] == NAMES[name])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("size", [(56, 56), (70, 44)])
def test_the_same_outputs_and_gradients(name: str, size: tuple[int, int]) -> None:
    built = made(MODELS[name])
    theirs = trained(built, images(*size))
    with swin_stand_in.installed() as operator:
        ours = trained(built, images(*size))
        assert operator.calls == LAYERS and operator.masks >= 1
        assert told(name) == f"{LAYERS} calls computed, class Reordered"
    assert_near(ours, theirs)
    assert_near(trained(built, images(*size)), theirs)
    assert operator.calls == LAYERS, "uninstalled"


@pytest.mark.parametrize("name", MODELS)
def test_checkpointed_blocks(name: str) -> None:
    built = made(MODELS[name], with_cp=True)
    theirs = trained(built, images())
    with swin_stand_in.installed() as operator:
        assert_near(trained(built, images()), theirs)
        assert operator.calls == 2 * LAYERS


@pytest.mark.parametrize("name", MODELS)
def test_dropout_of_attention(name: str) -> None:
    built = made(MODELS[name], attn_drop_rate=0.1)
    with swin_stand_in.installed() as operator:
        output(built, images())
        assert operator.calls == 0 and "dropout of attention" in told(name)
        built.eval()  # returns nothing in these libraries
        output(built, images())
        assert operator.calls == LAYERS


@pytest.mark.parametrize("name", MODELS)
def test_an_attention_of_another_make(name: str) -> None:
    """mmpretrain's MixMIM derives its attention from WindowMSA like this."""
    built = made(MODELS[name])
    built.eval()
    theirs = output(built, images())
    for module in built.modules():
        if type(module).__name__ in ("WindowMSA", "WindowMSAV2"):
            kind: Any = type(module)
            forward = functools.partialmethod(kind.forward)
            module.__class__ = type("Own", (kind,), {"forward": forward})
    with swin_stand_in.installed() as operator:
        torch.testing.assert_close(output(built, images()), theirs)
        assert operator.calls == 0
