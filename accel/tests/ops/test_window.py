# SPDX-License-Identifier: Apache-2.0
"""Attention within windows: PyTorch's form against float64, and what is refused. The kernels for
GPUs are compared in device_ops_test.cpp, and test_ops_device.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import scenes
import torch
from paceline import ops
from paceline.ops import _window

Tensor = torch.Tensor
INF = float("inf")


def inputs(windows: int, side: int, heads: int, depth: int, masks: int, dtype: Any) -> list[Any]:
    torch.manual_seed(side)
    tokens = side * side
    places = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij"), -1)
    off = places.view(-1, 1, 2) - places.view(1, -1, 2) + side - 1
    mask = torch.where(torch.rand(masks, tokens, tokens) < 0.3, -100.0, 0.0) if masks else None
    return [
        torch.randn(windows, tokens, 3, heads, depth, dtype=dtype).requires_grad_(),
        torch.randn((2 * side - 1) ** 2, heads, dtype=dtype).requires_grad_(),
        off[..., 0] * (2 * side - 1) + off[..., 1],
        mask,
    ]


def by_hand(qkv: Tensor, table: Tensor, index: Tensor, mask: Tensor | None) -> Tensor:
    """A window and a head at a time."""
    windows, tokens, _, heads, depth = qkv.shape
    out = []
    for window in range(windows):
        for head in range(heads):
            q, k, v = qkv[window, :, :, head].unbind(1)
            scores = q @ k.T / depth**0.5 + table[index.view(tokens, tokens), head]
            if mask is not None:
                scores = scores + mask[window % mask.shape[0]]
            out.append(scores.softmax(1) @ v)
    return torch.stack(out).view(windows, heads, tokens, depth).transpose(1, 2).flatten(2)


@pytest.mark.parametrize(
    ("windows", "side", "heads", "depth", "masks"),
    [(4, 7, 3, 32, 2), (3, 4, 2, 16, 0), (6, 2, 1, 8, 3), (1, 1, 1, 4, 1)],
)
def test_attention_is_that_of_each_window(
    windows: int, side: int, heads: int, depth: int, masks: int
) -> None:
    for dtype, bound in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        qkv, table, index, mask = inputs(windows, side, heads, depth, masks, dtype)
        found, wanted = (
            ops.window_attention(qkv, table, index, mask),
            by_hand(qkv, table, index, mask),
        )
        assert found.dtype is dtype
        torch.testing.assert_close(found, wanted, rtol=bound, atol=bound)
        weights = torch.randn_like(found)
        grads = [
            torch.autograd.grad((out * weights).sum(), (qkv, table)) for out in (found, wanted)
        ]
        for ours, theirs in zip(*grads):
            torch.testing.assert_close(ours, theirs, rtol=10 * bound, atol=10 * bound)


FUSED = pytest.mark.skipif(not _window._has_fused(), reason="PyTorch without fused attention")


@FUSED
@pytest.mark.parametrize("masks", [0, 2, 4])
@pytest.mark.parametrize("table_dtype", [torch.float32, torch.bfloat16])
def test_fused_attention_is_nearer_to_float64(masks: int, table_dtype: torch.dtype) -> None:
    """Without gradients, packed and apart, with a mask for several images and for one."""
    for dtype, bound in ((torch.float32, 3e-6), (torch.bfloat16, 2e-2)):
        qkv, table, index, mask = inputs(4, 7, 3, 32, masks, torch.float32)
        qkv, table = qkv.detach().to(dtype), table.detach().to(table_dtype)
        arguments = (table, index, mask, 32**-0.5)
        found = _window.by_fused(qkv, *arguments)
        assert found is not None and found.dtype is dtype
        apart = _window.by_fused(tuple(qkv.unbind(2)), *arguments)
        assert torch.equal(found, apart)
        assert torch.equal(found, ops.window_attention(qkv, table, index, mask))
        wanted = by_hand(qkv.double(), table.double(), index, mask)
        plain = _window.by_torch(qkv, *arguments)
        error, of_plain = ((each.double() - wanted).abs().max() for each in (found, plain))
        assert error <= bound and error <= 2 * of_plain, (error, of_plain)


@FUSED
def test_fused_attention_is_left_where_it_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    qkv, table, index, mask = inputs(2, 3, 2, 8, 2, torch.float32)
    given = [qkv.detach(), table.detach(), index, mask, 0.5]
    calls: list[int] = []
    fused = _window.F.scaled_dot_product_attention

    def counted(*arguments: Any, **more: Any) -> torch.Tensor:
        calls.append(1)
        return fused(*arguments, **more)

    monkeypatch.setattr(_window.F, "scaled_dot_product_attention", counted)
    assert _window.by_fused(*given) is not None and len(calls) == 1
    with torch.no_grad():
        assert _window.by_fused(qkv, *given[1:]) is not None
    assert _window.by_fused(qkv, *given[1:]) is None  # it needs a gradient
    assert _window.by_fused(given[0], table, *given[2:]) is None
    for bad in (-INF, INF, float("nan")):
        lost = mask.clone()
        lost[0, 1, 2] = bad
        assert _window.by_fused(given[0], table.detach(), index, lost, 0.5) is None
    assert _window.by_fused(given[0].double(), *given[1:]) is None
    assert _window.by_fused(given[0].as_subclass(scenes.Own), *given[1:]) is None
    q, k, v = given[0].unbind(2)
    assert _window.by_fused((q, k.bfloat16(), v), *given[1:]) is None
    batched = torch.func.vmap(lambda each: ops.window_attention(each, *given[1:4]))
    assert batched(given[0][None]).shape == (1, 2, 9, 16)
    assert len(calls) == 2


@FUSED
def test_fused_attention_is_the_same_with_any_number_of_threads() -> None:
    qkv, table, index, mask = inputs(12, 7, 3, 32, 4, torch.float32)
    with torch.no_grad():
        once = ops.window_attention(qkv, table, index, mask)
        torch.set_num_threads(3)
        try:
            again = ops.window_attention(qkv, table, index, mask)
        finally:
            torch.set_num_threads(1)
    assert torch.equal(once, again)


def test_three_tensors_are_as_one() -> None:
    qkv, table, index, mask = inputs(4, 3, 2, 8, 2, torch.float32)
    apart = ops.window_attention(tuple(qkv.unbind(2)), table, index.view(-1), mask, scale=0.5)
    torch.testing.assert_close(apart, ops.window_attention(qkv, table, index, mask, scale=0.5))


def test_tensors_of_several_dtypes() -> None:
    qkv, table, index, mask = inputs(4, 3, 2, 8, 2, torch.float32)
    q, k, v = qkv.detach().bfloat16().unbind(2)
    apart = ops.window_attention((q, k.float(), v.half()), table, index, mask)
    wanted = ops.window_attention(
        (q.float(), k.float(), v.half().float()), table, index.short(), mask
    )
    assert apart.dtype is torch.bfloat16
    assert torch.equal(apart, wanted.bfloat16())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_mask_is_not_narrowed_to_the_table(dtype: torch.dtype) -> None:
    qkv, table, index, mask = inputs(2, 3, 2, 8, 2, torch.float32)
    mask[0, 4] = torch.finfo(torch.float32).min
    found = ops.window_attention(qkv, table.to(dtype), index, mask)
    wanted = by_hand(qkv, table.to(dtype).float(), index, mask)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    # All keys are masked alike, so that the mean of the values is left.
    torch.testing.assert_close(found[0, 4], qkv[0, :, 2].mean(0).flatten())


def test_masks_that_are_no_numbers() -> None:
    qkv, table, index, mask = inputs(2, 3, 1, 8, 2, torch.float32)
    mask[0, 1, 2] = mask[0, 2] = -INF
    mask[1, 3, 0] = INF
    mask[1, 4, 5] = float("nan")
    found = ops.window_attention(qkv, table, index, mask)
    torch.testing.assert_close(found, by_hand(qkv, table, index, mask), equal_nan=True)
    lost = found.isnan().all(2).nonzero().tolist()
    assert lost == found.isnan().any(2).nonzero().tolist() == [[0, 2], [1, 3], [1, 4]]


def test_gradients_have_gradients() -> None:
    qkv, table, index, mask = inputs(2, 2, 1, 4, 2, torch.float64)

    def call(qkv: Tensor, table: Tensor) -> Tensor:
        return ops.window_attention(qkv, table, index, mask)

    assert torch.autograd.gradcheck(call, (qkv, table))
    assert torch.autograd.gradgradcheck(call, (qkv, table))


def test_a_processor_is_none_of_the_kernels() -> None:
    assert not _window.takes(*inputs(2, 7, 3, 32, 0, torch.float16))
    qkv, table, index, _ = inputs(2, 7, 3, 32, 0, torch.float32)
    assert ops.window_attention(qkv.as_subclass(scenes.Own), table, index).shape == (2, 49, 96)


@pytest.mark.parametrize(
    ("place", "value", "error", "text"),
    [
        (0, torch.zeros(2, 4, 2, 1, 8), ValueError, "qkv has shape"),
        (0, [torch.zeros(2, 4, 1, 8)] * 2, ValueError, "qkv has 2 items"),
        (0, [torch.zeros(2, 4, 1, 8)] * 2 + [torch.zeros(2, 4, 1, 9)], ValueError, "v has shape"),
        (0, torch.zeros(2, 4, 3, 1, 8, dtype=torch.int64), TypeError, "qkv has dtype"),
        (
            0,
            torch.zeros(2, 4, 3, 1, 0),
            ValueError,
            r"qkv has shape .* 0\): pass heads of one number",
        ),
        (0, [torch.zeros(2, 4, 1, 0)] * 3, ValueError, r"q has shape \(2, 4, 1, 0\): pass heads"),
        (1, torch.zeros(9, 2), ValueError, "table has shape"),
        (1, torch.zeros(9, 1, dtype=torch.int64), TypeError, "table has dtype"),
        (2, torch.zeros(4, 5, dtype=torch.int64), ValueError, "index has shape"),
        (2, torch.zeros(4, 4), TypeError, "index has dtype"),
        (2, torch.zeros(4, 4, dtype=torch.complex64), TypeError, "index has dtype"),
        (2, torch.zeros(4, 4, dtype=torch.bool), TypeError, "index has dtype"),
        (2, [[0]], TypeError, "index is a list"),
        (3, torch.zeros(2, 4, 4, dtype=torch.bool), TypeError, "mask has dtype"),
        (3, torch.zeros(2, 4, 5), ValueError, "mask has shape"),
        (3, torch.zeros(3, 4, 4), ValueError, "mask has 3 windows, and qkv 2"),
    ],
)
def test_what_does_not_fit_is_named(place: int, value: Any, error: Any, text: str) -> None:
    arguments: list[Any] = [
        torch.zeros(2, 4, 3, 1, 8),
        torch.zeros(9, 1),
        torch.zeros(4, 4, dtype=torch.int64),
        torch.zeros(2, 4, 4),
    ]
    ops.window_attention(*arguments)
    arguments[place] = value
    with pytest.raises(error, match=text):
        ops.window_attention(*arguments)
