# SPDX-License-Identifier: Apache-2.0
"""The kernels of window attention on a GPU: their launches, forward and backward, without autograd.

Where the tensors `k` and `v` are given, `packed` is q alone.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch

from paceline._core.tensors import index_of, multiprocessors
from paceline.ops import _arguments as arguments
from paceline.ops import _device

Tensor = torch.Tensor
# Blocks of a launch for each multiprocessor: as many as run there at once, so that all end at about
# the same time.
FORWARD_BLOCKS, BACKWARD_BLOCKS = 4, 2


def forward(
    packed: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    table: Tensor,
    index: Tensor,
    mask: Tensor | None,
    scale: float,
) -> Tensor:
    """The tensors of q, k and v are dense (`panels`)."""
    out = packed.new_empty(shape_of_out(packed))
    biases = _biases(table)
    index, masks = index.contiguous(), as_masks(mask)
    call = _call(packed, k, v, biases, index, masks, scale, FORWARD_BLOCKS)
    call.out = out.data_ptr()
    _device.launch(_device.functions().attention_forward, call, packed.device)
    return out


def backward(
    packed: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    table: Tensor,
    index: Tensor,
    mask: Tensor | None,
    scale: float,
    out_grad: Tensor,
) -> list[Tensor]:
    """The gradients of `packed`, of k and v if they are given, and of the table."""
    tokens = packed.shape[1]
    biases = _biases(table)
    index, masks = index.contiguous(), as_masks(mask)
    out_grad = panels(arguments.cast(out_grad, packed.dtype))
    grads = [None if each is None else torch.empty_like(each) for each in (packed, k, v)]
    table_grad = torch.empty_like(biases)
    call = _call(packed, k, v, biases, index, masks, scale, BACKWARD_BLOCKS)
    sums = biases.new_empty((call.slots, biases.shape[1], tokens, tokens))
    call.out_grad, call.table_grad, call.sums = (
        each.data_ptr() for each in (out_grad, table_grad, sums)
    )
    call.q_grad, call.k_grad, call.v_grad = _addresses(*grads)
    _device.launch(_device.functions().attention_backward, call, packed.device)
    return [*(each for each in grads if each is not None), arguments.cast(table_grad, table.dtype)]


def shape_of_out(packed: Tensor) -> tuple[int, int, int]:
    windows, tokens = packed.shape[:2]
    return windows, tokens, packed.shape[-2] * packed.shape[-1]


def panels(tensor: Tensor) -> Tensor:
    """The same numbers, dense and at an address that the kernels can read. A view into a flat
    tensor, as the backward of `torch.cat` makes them, may lie anywhere.
    """
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.data_ptr() % _device.PANEL_BYTES else tensor


def as_masks(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else arguments.cast(mask, torch.float32).contiguous()


def _biases(table: Tensor) -> Tensor:
    return arguments.cast(table, torch.float32).contiguous()


def _addresses(packed: Any, k: Any, v: Any) -> tuple[int, int, int]:
    if k is None:
        third = packed.shape[-2] * _device.HEAD_DIM * packed.element_size()
        first = packed.data_ptr()
        return first, first + third, first + 2 * third
    return packed.data_ptr(), k.data_ptr(), v.data_ptr()


def _call(
    packed: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    biases: Tensor,
    index: Tensor,
    masks: Tensor | None,
    scale: float,
    blocks: int,
) -> _device.Attention:
    windows, tokens = packed.shape[:2]
    entries, heads = biases.shape
    # A tensor with one window, or one token, may show any stride for it.
    token_stride = math.prod(packed.shape[2:])
    slots = multiprocessors(index_of(packed.device)) * blocks // heads
    call = _device.Attention(
        ctypes.sizeof(_device.Attention), _device.TYPES[packed.dtype],
        windows, 1 if masks is None else masks.shape[0], tokens, heads, entries,
        tokens * token_stride, token_stride, max(1, min(windows, slots)),
        *_addresses(packed, k, v), biases.data_ptr(), index.data_ptr(),
        None if masks is None else masks.data_ptr(),
    )  # fmt: skip
    call.scale = scale
    return call
